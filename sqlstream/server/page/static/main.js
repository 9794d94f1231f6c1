// Starts the page.

import { say } from "./dom.js";
import { start } from "./router.js";

const THEME = "sqlstream-theme";

function showTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

showTheme(localStorage.getItem(THEME));
document.getElementById("theme").addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  localStorage.setItem(THEME, theme);
  showTheme(theme);
});

document.addEventListener("connection", ({ detail: isConnected }) => {
  const shown = document.getElementById("connection");
  shown.dataset.connected = isConnected;
  say(shown, isConnected === null ? "" : isConnected ? "live" : "not connected");
});

// The address behind the # is that of the view.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});

start(document.getElementById("main"), document.getElementById("nav"));
