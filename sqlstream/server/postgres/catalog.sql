-- PostgreSQL's catalog, as DuckDB runs it: what clients ask about before they show a list of tables.
--
-- Before it there are the tables _schemas, _relations, _columns, _classes, _types and _settings, and the macros _user(), _database(),
-- _version() and _pid(). The names of tables of information_schema have it in them.

-- What a warehouse does not have: indexes, constraints, functions and the like.

CREATE TABLE pg_attrdef (oid BIGINT, adrelid BIGINT, adnum SMALLINT, adbin VARCHAR);
CREATE TABLE pg_description (objoid BIGINT, classoid BIGINT, objsubid INTEGER, description VARCHAR);
CREATE TABLE pg_shdescription (objoid BIGINT, classoid BIGINT, description VARCHAR);
CREATE TABLE pg_index (
    indexrelid BIGINT, indrelid BIGINT, indnatts SMALLINT, indnkeyatts SMALLINT, indisunique BOOLEAN, indisprimary BOOLEAN,
    indisexclusion BOOLEAN, indimmediate BOOLEAN, indisclustered BOOLEAN, indisvalid BOOLEAN, indisready BOOLEAN, indislive
    BOOLEAN, indisreplident BOOLEAN, indnullsnotdistinct BOOLEAN, indkey SMALLINT[], indcollation BIGINT[], indclass
    BIGINT[], indoption SMALLINT[], indexprs VARCHAR, indpred VARCHAR
);
CREATE TABLE pg_constraint (
    oid BIGINT, conname VARCHAR, connamespace BIGINT, contype VARCHAR, condeferrable BOOLEAN, condeferred BOOLEAN,
    convalidated BOOLEAN, conrelid BIGINT, contypid BIGINT, conindid BIGINT, conparentid BIGINT, confrelid BIGINT,
    confupdtype VARCHAR, confdeltype VARCHAR, confmatchtype VARCHAR, conislocal BOOLEAN, coninhcount INTEGER, connoinherit
    BOOLEAN, conkey SMALLINT[], confkey SMALLINT[], conbin VARCHAR
);
CREATE TABLE pg_inherits (inhrelid BIGINT, inhparent BIGINT, inhseqno INTEGER, inhdetachpending BOOLEAN);
CREATE TABLE pg_policy (
    oid BIGINT, polname VARCHAR, polrelid BIGINT, polcmd VARCHAR, polpermissive BOOLEAN, polroles BIGINT[], polqual VARCHAR,
    polwithcheck VARCHAR
);
CREATE TABLE pg_trigger (
    oid BIGINT, tgrelid BIGINT, tgparentid BIGINT, tgname VARCHAR, tgfoid BIGINT, tgtype SMALLINT, tgenabled VARCHAR,
    tgisinternal BOOLEAN, tgconstrrelid BIGINT, tgconstrindid BIGINT, tgconstraint BIGINT, tgdeferrable BOOLEAN,
    tginitdeferred BOOLEAN
);
CREATE TABLE pg_proc (
    oid BIGINT, proname VARCHAR, pronamespace BIGINT, proowner BIGINT, prolang BIGINT, prokind VARCHAR, proretset BOOLEAN,
    prorettype BIGINT, pronargs SMALLINT, proargtypes BIGINT[], proallargtypes BIGINT[], proargmodes VARCHAR[], proargnames
    VARCHAR[], prosrc VARCHAR, provolatile VARCHAR, proisstrict BOOLEAN, prosecdef BOOLEAN
);
CREATE TABLE pg_collation (
    oid BIGINT, collname VARCHAR, collnamespace BIGINT, collprovider VARCHAR, collisdeterministic BOOLEAN, collencoding
    INTEGER, collcollate VARCHAR
);
CREATE TABLE pg_statistic_ext (
    oid BIGINT, stxrelid BIGINT, stxname VARCHAR, stxnamespace BIGINT, stxkind VARCHAR[], stxstattarget INTEGER, stxkeys
    SMALLINT[], stxexprs VARCHAR
);
CREATE TABLE pg_publication (oid BIGINT, pubname VARCHAR, puballtables BOOLEAN, pubinsert BOOLEAN);
CREATE TABLE pg_publication_rel (oid BIGINT, prpubid BIGINT, prrelid BIGINT, prqual VARCHAR, prattrs SMALLINT[]);
CREATE TABLE pg_publication_namespace (oid BIGINT, pnpubid BIGINT, pnnspid BIGINT);
CREATE TABLE pg_rewrite (
    oid BIGINT, rulename VARCHAR, ev_class BIGINT, ev_type VARCHAR, ev_enabled VARCHAR, is_instead BOOLEAN
);
CREATE TABLE pg_rules (schemaname VARCHAR, tablename VARCHAR, rulename VARCHAR, definition VARCHAR);
CREATE TABLE pg_depend (
    classid BIGINT, objid BIGINT, objsubid INTEGER, refclassid BIGINT, refobjid BIGINT, refobjsubid INTEGER, deptype VARCHAR
);
CREATE TABLE pg_enum (oid BIGINT, enumtypid BIGINT, enumsortorder FLOAT, enumlabel VARCHAR);
CREATE TABLE pg_range (rngtypid BIGINT, rngsubtype BIGINT, rngmultitypid BIGINT);
CREATE TABLE pg_sequence (
    seqrelid BIGINT, seqtypid BIGINT, seqstart BIGINT, seqincrement BIGINT, seqmax BIGINT, seqmin BIGINT, seqcache BIGINT,
    seqcycle BOOLEAN
);
CREATE TABLE pg_sequences (schemaname VARCHAR, sequencename VARCHAR, last_value BIGINT);
CREATE TABLE pg_extension (
    oid BIGINT, extname VARCHAR, extowner BIGINT, extnamespace BIGINT, extrelocatable BOOLEAN, extversion VARCHAR
);
CREATE TABLE pg_foreign_table (ftrelid BIGINT, ftserver BIGINT, ftoptions VARCHAR[]);
CREATE TABLE pg_foreign_server (oid BIGINT, srvname VARCHAR, srvowner BIGINT, srvfdw BIGINT);
CREATE TABLE pg_foreign_data_wrapper (oid BIGINT, fdwname VARCHAR);
CREATE TABLE pg_partitioned_table (partrelid BIGINT, partstrat VARCHAR, partnatts SMALLINT, partattrs SMALLINT[]);
CREATE TABLE pg_auth_members (roleid BIGINT, member BIGINT, grantor BIGINT, admin_option BOOLEAN);
CREATE TABLE pg_event_trigger (oid BIGINT, evtname VARCHAR);
CREATE TABLE pg_operator (
    oid BIGINT, oprname VARCHAR, oprnamespace BIGINT, oprleft BIGINT, oprright BIGINT
);
CREATE TABLE pg_opclass (oid BIGINT, opcmethod BIGINT, opcname VARCHAR, opcnamespace BIGINT, opcintype BIGINT, opcdefault BOOLEAN);
CREATE TABLE pg_cast (oid BIGINT, castsource BIGINT, casttarget BIGINT, castfunc BIGINT, castcontext VARCHAR, castmethod VARCHAR);
CREATE TABLE pg_matviews (
    schemaname VARCHAR, matviewname VARCHAR, matviewowner VARCHAR, definition VARCHAR, ispopulated BOOLEAN
);
CREATE TABLE pg_indexes (
    schemaname VARCHAR, tablename VARCHAR, indexname VARCHAR, tablespace VARCHAR, indexdef VARCHAR
);
CREATE TABLE pg_stat_activity (
    datid BIGINT, datname VARCHAR, pid INTEGER, usename VARCHAR, application_name VARCHAR, state VARCHAR, query VARCHAR
);
CREATE TABLE pg_locks (locktype VARCHAR, relation BIGINT, pid INTEGER, mode VARCHAR, granted BOOLEAN);
CREATE TABLE pg_stats (schemaname VARCHAR, tablename VARCHAR, attname VARCHAR);
CREATE TABLE "information_schema.table_constraints" (
    constraint_catalog VARCHAR, constraint_schema VARCHAR, constraint_name VARCHAR, table_catalog VARCHAR, table_schema
    VARCHAR, table_name VARCHAR, constraint_type VARCHAR, is_deferrable VARCHAR, initially_deferred VARCHAR, enforced
    VARCHAR
);
CREATE TABLE "information_schema.key_column_usage" (
    constraint_catalog VARCHAR, constraint_schema VARCHAR, constraint_name VARCHAR, table_catalog VARCHAR, table_schema
    VARCHAR, table_name VARCHAR, column_name VARCHAR, ordinal_position INTEGER, position_in_unique_constraint INTEGER
);
CREATE TABLE "information_schema.referential_constraints" (
    constraint_catalog VARCHAR, constraint_schema VARCHAR, constraint_name VARCHAR, unique_constraint_catalog VARCHAR,
    unique_constraint_schema VARCHAR, unique_constraint_name VARCHAR, match_option VARCHAR, update_rule VARCHAR, delete_rule
    VARCHAR
);
CREATE TABLE "information_schema.constraint_column_usage" (
    table_catalog VARCHAR, table_schema VARCHAR, table_name VARCHAR, column_name VARCHAR, constraint_catalog VARCHAR,
    constraint_schema VARCHAR, constraint_name VARCHAR
);
CREATE TABLE "information_schema.routines" (
    routine_catalog VARCHAR, routine_schema VARCHAR, routine_name VARCHAR, routine_type VARCHAR, specific_schema VARCHAR,
    specific_name VARCHAR, data_type VARCHAR
);
CREATE TABLE "information_schema.sequences" (sequence_catalog VARCHAR, sequence_schema VARCHAR, sequence_name VARCHAR);
CREATE TABLE "information_schema.triggers" (
    trigger_catalog VARCHAR, trigger_schema VARCHAR, trigger_name VARCHAR, event_object_table VARCHAR
);
CREATE TABLE "information_schema.character_sets" (character_set_name VARCHAR, default_collate_name VARCHAR);

-- Functions. Most have one answer, as there is one user, who may read everything.

-- An argument may be the name of a column, which must not be one of the relations inside.
CREATE VIEW _known_types AS SELECT t.oid AS _k_oid, t.name AS _k_name, t.title AS _k_title, t.element AS _k_element FROM _types t;
CREATE VIEW _known_relations AS SELECT oid AS _k_oid, schema AS _k_schema, name AS _k_name FROM _relations;

CREATE MACRO format_type(_o, _m) AS (
    SELECT replace(_k_title, '[]', '')
    || CASE WHEN _k_name IN ('numeric', '_numeric') AND _m >= 0
        THEN '(' || ((_m - 4) >> 16) || ',' || ((_m - 4) & 65535) || ')' ELSE '' END
    || CASE WHEN _k_element > 0 THEN '[]' ELSE '' END
    FROM _known_types WHERE _k_oid = _o
);
CREATE MACRO _class_oid(_n) AS coalesce(
    (SELECT min(_k_oid) FROM _known_relations WHERE replace(_n, '"', '') IN (_k_name, _k_schema || '.' || _k_name)),
    (SELECT min(oid) FROM _classes WHERE name = replace(_n, 'pg_catalog.', ''))
);
CREATE MACRO _class_name(_o) AS (
    SELECT CASE WHEN _k_schema = 'main' THEN _k_name ELSE '"' || _k_schema || '".' || _k_name END
    FROM _known_relations WHERE _k_oid = _o
);
CREATE MACRO _type_oid(_n) AS (
    SELECT min(_k_oid) FROM _known_types WHERE replace(lower(_n), 'pg_catalog.', '') IN (_k_name, _k_title)
);
CREATE MACRO to_regclass(_n) AS _class_oid(_n);
CREATE MACRO to_regtype(_n) AS _type_oid(_n);
CREATE MACRO pg_get_userbyid(_o) AS _user();
CREATE MACRO pg_get_expr(_e, _o) AS CAST(NULL AS VARCHAR), (_e, _o, _p) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_constraintdef(_o) AS CAST(NULL AS VARCHAR), (_o, _p) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_viewdef(_o) AS '', (_o, _p) AS '';
CREATE MACRO pg_get_indexdef(_o) AS CAST(NULL AS VARCHAR), (_o, _c, _p) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_triggerdef(_o) AS CAST(NULL AS VARCHAR), (_o, _p) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_ruledef(_o) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_partkeydef(_o) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_statisticsobjdef_columns(_o) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_function_arguments(_o) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_function_result(_o) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_function_identity_arguments(_o) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_get_serial_sequence(_t, _c) AS CAST(NULL AS VARCHAR);
CREATE MACRO pg_partition_ancestors(_o) AS unnest([CAST(_o AS BIGINT)]);
CREATE MACRO pg_relation_is_publishable(_o) AS false;
CREATE MACRO pg_table_is_visible(_o) AS _o IN (SELECT _k_oid FROM _known_relations WHERE _k_schema = 'main');
CREATE MACRO pg_type_is_visible(_o) AS true;
CREATE MACRO pg_function_is_visible(_o) AS true;
CREATE MACRO pg_is_other_temp_schema(_o) AS false;
CREATE MACRO pg_my_temp_schema() AS 0;
CREATE MACRO pg_is_in_recovery() AS false;
CREATE MACRO pg_backend_pid() AS _pid();
CREATE MACRO pg_encoding_to_char(_o) AS 'UTF8';
CREATE MACRO pg_relation_size(_o) AS 0;
CREATE MACRO pg_table_size(_o) AS 0;
CREATE MACRO pg_total_relation_size(_o) AS 0;
CREATE MACRO pg_database_size(_o) AS 0;
CREATE MACRO pg_size_pretty(_o) AS _o || ' bytes';
CREATE MACRO pg_tablespace_location(_o) AS '';
CREATE MACRO pg_postmaster_start_time() AS now();
CREATE MACRO pg_jit_available() AS false;
CREATE MACRO obj_description(_o, _c) AS CAST(NULL AS VARCHAR), (_o) AS CAST(NULL AS VARCHAR);
CREATE MACRO col_description(_o, _c) AS CAST(NULL AS VARCHAR);
CREATE MACRO shobj_description(_o, _c) AS CAST(NULL AS VARCHAR);
CREATE MACRO has_table_privilege(_t, _p) AS true, (_u, _t, _p) AS true;
CREATE MACRO has_schema_privilege(_s, _p) AS true, (_u, _s, _p) AS true;
CREATE MACRO has_database_privilege(_d, _p) AS true, (_u, _d, _p) AS true;
CREATE MACRO has_column_privilege(_t, _c, _p) AS true, (_u, _t, _c, _p) AS true;
CREATE MACRO has_any_column_privilege(_t, _p) AS true;
CREATE MACRO quote_ident(_n) AS CASE WHEN regexp_matches(_n, '^[a-z_][a-z0-9_]*$') THEN _n ELSE '"' || replace(_n, '"', '""')
    || '"' END;
CREATE MACRO array_lower(_a, _d) AS CASE WHEN len(_a) > 0 THEN 1 END;
CREATE MACRO array_upper(_a, _d) AS CASE WHEN len(_a) > 0 THEN len(_a) END;
CREATE MACRO age(_x) AS 0;
CREATE MACRO txid_current() AS 0;
CREATE MACRO _pg_expandarray(_a) AS unnest(list_transform(_a, lambda v, i: {'x': v, 'n': i}));
CREATE MACRO version() AS _version();
CREATE MACRO current_database() AS _database();
CREATE MACRO current_schema() AS 'main';
CREATE MACRO current_schemas(_i) AS CASE WHEN _i THEN ['pg_catalog', 'main'] ELSE ['main'] END;
CREATE MACRO inet_server_addr() AS CAST(NULL AS VARCHAR);
CREATE MACRO inet_client_addr() AS CAST(NULL AS VARCHAR);
CREATE MACRO inet_server_port() AS CAST(NULL AS INTEGER);

-- What there is to read.
CREATE VIEW pg_namespace AS SELECT DISTINCT schema_oid AS oid, schema AS nspname, 10::BIGINT AS nspowner,
    NULL::VARCHAR[] AS nspacl FROM _schemas;
CREATE VIEW pg_class AS SELECT oid, name AS relname, schema_oid AS relnamespace, 0::BIGINT AS reltype, 0::BIGINT AS reloftype,
    10::BIGINT AS relowner, CASE kind WHEN 'r' THEN 2 ELSE 0 END::BIGINT AS relam, 0::BIGINT AS relfilenode,
    0::BIGINT AS reltablespace, 0 AS relpages, -1::FLOAT AS reltuples, 0 AS relallvisible, 0::BIGINT AS reltoastrelid,
    false AS relhasindex, false AS relisshared, 'p' AS relpersistence, kind AS relkind, width::SMALLINT AS relnatts,
    0::SMALLINT AS relchecks, false AS relhasrules, false AS relhastriggers, false AS relhassubclass, false AS relrowsecurity,
    false AS relforcerowsecurity, true AS relispopulated, 'd' AS relreplident, false AS relispartition, 0::BIGINT AS relrewrite,
    0::BIGINT AS relfrozenxid, 0::BIGINT AS relminmxid, [_user() || '=r/' || _user()] AS relacl, NULL::VARCHAR[] AS reloptions,
    NULL::VARCHAR AS relpartbound, 1259::BIGINT AS tableoid FROM _relations;
CREATE VIEW pg_attribute AS SELECT table_oid AS attrelid, name AS attname, type_oid AS atttypid, -1 AS attstattarget,
    size::SMALLINT AS attlen, number::SMALLINT AS attnum, is_array::INTEGER AS attndims, -1 AS attcacheoff, modifier AS atttypmod,
    false AS attbyval, 'p' AS attstorage, '' AS attcompression, 'i' AS attalign, false AS attnotnull, false AS atthasdef,
    false AS atthasmissing, '' AS attidentity, '' AS attgenerated, false AS attisdropped, true AS attislocal, 0 AS attinhcount,
    0::BIGINT AS attcollation, NULL::VARCHAR[] AS attacl, NULL::VARCHAR[] AS attoptions, NULL::VARCHAR[] AS attfdwoptions,
    NULL::VARCHAR AS attmissingval FROM _columns;
CREATE VIEW pg_type AS SELECT oid, name AS typname, 11::BIGINT AS typnamespace, 10::BIGINT AS typowner,
    size::SMALLINT AS typlen, false AS typbyval, 'b' AS typtype, category AS typcategory, false AS typispreferred,
    true AS typisdefined, ',' AS typdelim, 0::BIGINT AS typrelid, 0::BIGINT AS typsubscript, element AS typelem,
    array_oid AS typarray, CASE WHEN element > 0 THEN 'array_in' ELSE name || 'in' END AS typinput, 'out' AS typoutput,
    CASE WHEN element > 0 THEN 'array_recv' ELSE name || 'recv' END AS typreceive, 'send' AS typsend, '-' AS typmodin,
    'i' AS typalign, 'p' AS typstorage, false AS typnotnull, 0::BIGINT AS typbasetype, -1 AS typtypmod, 0 AS typndims,
    0::BIGINT AS typcollation, NULL::VARCHAR AS typdefaultbin, NULL::VARCHAR AS typdefault, NULL::VARCHAR[] AS typacl FROM _types;
CREATE VIEW pg_am AS SELECT 2::BIGINT AS oid, 'heap' AS amname, '-' AS amhandler, 't' AS amtype;
CREATE VIEW pg_language AS SELECT 14::BIGINT AS oid, 'sql' AS lanname;
CREATE VIEW pg_tablespace AS SELECT 1663::BIGINT AS oid, 'pg_default' AS spcname, 10::BIGINT AS spcowner,
    NULL::VARCHAR[] AS spcacl, NULL::VARCHAR[] AS spcoptions;
CREATE VIEW pg_database AS SELECT 5::BIGINT AS oid, _database() AS datname, 10::BIGINT AS datdba, 6 AS encoding,
    'c' AS datlocprovider, false AS datistemplate, true AS datallowconn, -1 AS datconnlimit, 1663::BIGINT AS dattablespace,
    'C' AS datcollate, 'C' AS datctype, NULL::VARCHAR AS daticulocale, NULL::VARCHAR[] AS datacl;
CREATE VIEW pg_roles AS SELECT 10::BIGINT AS oid, _user() AS rolname, false AS rolsuper, true AS rolinherit,
    false AS rolcreaterole, false AS rolcreatedb, true AS rolcanlogin, false AS rolreplication, -1 AS rolconnlimit,
    '********' AS rolpassword, NULL::TIMESTAMPTZ AS rolvaliduntil, false AS rolbypassrls, NULL::VARCHAR[] AS rolconfig;
CREATE VIEW pg_authid AS FROM pg_roles;
CREATE VIEW pg_user AS SELECT rolname AS usename, oid AS usesysid, false AS usecreatedb, false AS usesuper FROM pg_roles;
CREATE VIEW pg_tables AS SELECT schema AS schemaname, name AS tablename, _user() AS tableowner, NULL::VARCHAR AS tablespace,
    false AS hasindexes, false AS hasrules, false AS hastriggers, false AS rowsecurity FROM _relations WHERE kind = 'r';
CREATE VIEW pg_views AS SELECT schema AS schemaname, name AS viewname, _user() AS viewowner, '' AS definition
    FROM _relations WHERE kind = 'v';
CREATE VIEW "information_schema.schemata" AS SELECT _database() AS catalog_name, schema AS schema_name, _user() AS schema_owner
    FROM _schemas;
CREATE VIEW "information_schema.tables" AS SELECT _database() AS table_catalog, schema AS table_schema, name AS table_name,
    CASE kind WHEN 'r' THEN 'BASE TABLE' ELSE 'VIEW' END AS table_type, 'NO' AS is_insertable_into, 'NO' AS is_typed
    FROM _relations;
CREATE VIEW "information_schema.views" AS SELECT _database() AS table_catalog, schema AS table_schema, name AS table_name,
    NULL::VARCHAR AS view_definition, 'NONE' AS check_option, 'NO' AS is_updatable FROM _relations WHERE kind = 'v';
CREATE VIEW "information_schema.columns" AS SELECT _database() AS table_catalog, r.schema AS table_schema, r.name AS table_name,
    c.name AS column_name, c.number AS ordinal_position, NULL::VARCHAR AS column_default, 'YES' AS is_nullable,
    CASE WHEN c.is_array THEN 'ARRAY' ELSE t.title END AS data_type, NULL::INTEGER AS character_maximum_length,
    CASE WHEN c.modifier >= 0 THEN ((c.modifier - 4) >> 16)::INTEGER
        ELSE CASE t.name WHEN 'int2' THEN 16 WHEN 'int4' THEN 32 WHEN 'int8' THEN 64 WHEN 'float4' THEN 24 WHEN 'float8' THEN 53 END END AS numeric_precision,
    CASE WHEN c.modifier >= 0 THEN ((c.modifier - 4) & 65535)::INTEGER WHEN t.name LIKE 'int_' THEN 0 END AS numeric_scale,
    CASE WHEN t.category = 'D' AND t.name <> 'date' THEN 6 END AS datetime_precision, _database() AS udt_catalog,
    'pg_catalog' AS udt_schema, t.name AS udt_name, 'NO' AS is_identity, 'NEVER' AS is_generated, 'NO' AS is_updatable,
    NULL::VARCHAR AS collation_name, NULL::VARCHAR AS domain_name
    FROM _columns c JOIN _relations r ON r.oid = c.table_oid JOIN _types t ON t.oid = c.type_oid;
CREATE VIEW pg_settings AS SELECT name, setting, NULL::VARCHAR AS unit, '' AS category, '' AS short_desc, NULL::VARCHAR AS extra_desc,
    'user' AS context, 'string' AS vartype, 'default' AS source, NULL::VARCHAR AS min_val, NULL::VARCHAR AS max_val,
    NULL::VARCHAR[] AS enumvals, setting AS boot_val, setting AS reset_val, false AS pending_restart FROM _settings;
