import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

/** Prints what PostgreSQL's JDBC driver finds in a server: `java -cp DRIVER Client.java URL USER PASSWORD`. */
public class Client {
    static void show(String title, ResultSet rows, String... columns) throws SQLException {
        System.out.println("# " + title);
        while (rows.next()) {
            List<String> values = new ArrayList<>();
            for (String column : columns) values.add(String.valueOf(rows.getString(column)));
            System.out.println(String.join("|", values));
        }
        rows.close();
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(arguments[0], arguments[1], arguments[2])) {
            DatabaseMetaData data = connection.getMetaData();
            System.out.println(data.getDatabaseProductName() + " " + data.getDatabaseMajorVersion());
            show("catalogs", data.getCatalogs(), "TABLE_CAT");
            show("schemas", data.getSchemas(), "TABLE_SCHEM");
            show("tables", data.getTables(null, null, "%", new String[] {"TABLE", "VIEW"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE");
            show("columns", data.getColumns(null, "state.hourly", "departures", "%"),
                "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "NULLABLE", "ORDINAL_POSITION");
            show("typed columns", data.getColumns(null, "main", "counts", null), "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME");
            show("keys", data.getPrimaryKeys(null, "main", "counts"), "COLUMN_NAME");
            show("imported", data.getImportedKeys(null, "main", "counts"), "FKCOLUMN_NAME");
            show("indexes", data.getIndexInfo(null, "main", "counts", false, true), "INDEX_NAME");
            show("functions", data.getFunctions(null, null, "%"), "FUNCTION_NAME");
            show("procedures", data.getProcedures(null, null, "%"), "PROCEDURE_NAME");
            show("privileges", data.getTablePrivileges(null, "main", "counts"), "PRIVILEGE");
            int types = 0;
            try (ResultSet rows = data.getTypeInfo()) { while (rows.next()) types++; }
            System.out.println("# types " + (types > 20));
            prepared(connection);
            typed(connection);
            portals(connection);
            failing(connection);
        }
    }

    /** The driver changes to binary values, and to a named statement, after it has run one five times. */
    static void prepared(Connection connection) throws SQLException {
        System.out.println("# prepared");
        try (PreparedStatement statement = connection.prepareStatement("SELECT k, n FROM counts WHERE n <= ? ORDER BY k")) {
            for (int i = 0; i < 8; i++) {
                statement.setLong(1, i);
                try (ResultSet rows = statement.executeQuery()) {
                    StringBuilder line = new StringBuilder();
                    while (rows.next()) line.append(rows.getString(1)).append('=').append(rows.getLong(2)).append(' ');
                    System.out.println(line.toString().trim());
                }
            }
        }
    }

    static void typed(Connection connection) throws SQLException {
        String sql = "SELECT ?::INTEGER, ?::VARCHAR, ?::TIMESTAMP, ?::DECIMAL(9,2), ?::BOOLEAN, ?::UUID, ?::DOUBLE, ?::DATE,"
            + " TIMESTAMPTZ '2024-01-01 10:00:00+02', [1, 2], {'a': 1}";
        System.out.println("# typed");
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < 7; i++) {
                statement.setInt(1, i);
                statement.setString(2, "it's " + i);
                statement.setTimestamp(3, Timestamp.valueOf("2024-01-01 10:00:00.25"));
                statement.setBigDecimal(4, new BigDecimal("-1.25"));
                statement.setBoolean(5, true);
                statement.setObject(6, UUID.fromString("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"));
                statement.setDouble(7, 1.5);
                statement.setDate(8, java.sql.Date.valueOf("2024-02-29"));
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    List<String> values = new ArrayList<>();
                    for (int column = 1; column <= 9; column++) values.add(String.valueOf(rows.getObject(column)));
                    values.add(Arrays.toString((Object[]) rows.getArray(10).getArray()));
                    values.add(rows.getString(11));
                    if (i == 0 || i == 6) System.out.println(String.join("|", values));
                }
            }
        }
    }

    /** With a fetch size, in a transaction, the driver takes rows in parts. */
    static void portals(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        long sum = 0;
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(100);
            try (ResultSet rows = statement.executeQuery("SELECT range FROM range(1050)")) { while (rows.next()) sum += rows.getLong(1); }
        }
        connection.commit();
        connection.setAutoCommit(true);
        System.out.println("# portals " + sum);
    }

    static void failing(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO counts VALUES ('x', 1)");
        } catch (SQLException error) {
            System.out.println("# refused " + error.getSQLState());
        }
    }
}
