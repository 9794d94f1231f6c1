"""The protocol Arrow Flight SQL, for ADBC, JDBC and ODBC drivers of Arrow."""
