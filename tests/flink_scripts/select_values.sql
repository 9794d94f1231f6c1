SELECT name, COUNT(*) AS n FROM (VALUES ('Bob'), ('Alice'), ('Greg'), ('Bob')) AS names(name) GROUP BY name;
