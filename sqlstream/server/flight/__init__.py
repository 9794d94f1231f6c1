"""Serves the protocol Arrow Flight SQL to the ADBC, JDBC and ODBC drivers of Arrow."""
