//! The statements of the files in `sql/`.

use tokio_postgres::types::Type;

use super::schema::Schema;

/// A statement with the types of its parameters, so that the driver need not ask for them.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) types: Vec<Type>,
}

/// All statements, for one schema.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) claim: Statement,
    pub(super) read: Statement,
    pub(super) renew: Statement,
    pub(super) settle: Statement,
    pub(super) put: Statement,
    pub(super) import: Statement,
    pub(super) purge: Statement,
    pub(super) due: Statement,
    pub(super) due_records: Statement,
    pub(super) postpone: Statement,
    pub(super) defer: Statement,
    pub(super) purge_versions: Statement,
    pub(super) list: Statement,
    pub(super) stats: Statement,
    pub(super) sentinel: Statement,
    pub(super) new_sentinel: Statement,
    pub(super) mark_awaited: Statement,
    pub(super) try_lock: Statement,
    pub(super) set_operation: Statement,
    pub(super) transaction_id: Statement,
    pub(super) transaction_status: Statement,
    #[cfg(feature = "tiered")]
    pub(super) generation: Statement,
    #[cfg(feature = "tiered")]
    pub(super) next_generation: Statement,
}

/// The columns of a record.
const COLUMNS: &str = include_str!("sql/columns.sql");

/// The end of both purges: what happens to the rows that they have chosen.
const REMOVAL: &str = include_str!("sql/removal.sql");

/// The id of the sentinel; see `migrations/0003_sentinel.sql`.
const SENTINEL: &str = "decode(repeat('ff', 32), 'hex')";

impl Statements {
    pub(super) fn new(schema: &Schema) -> Self {
        use Type as T;
        let bind = |text: &str, types: Vec<Type>| Statement {
            text: schema
                .statement(&text.replace("{removal}", REMOVAL))
                .replace("{columns}", COLUMNS)
                .replace("{sentinel}", SENTINEL),
            types,
        };
        let texts = |count: usize| std::iter::repeat_n(T::TEXT_ARRAY, count);
        let mut claim = vec![T::BYTEA_ARRAY, T::UUID_ARRAY, T::UUID_ARRAY];
        claim.extend(texts(7));
        claim.extend([T::BYTEA_ARRAY, T::BYTEA_ARRAY, T::TEXT_ARRAY]);
        claim.extend([T::INT8_ARRAY, T::INT8, T::INT8]);
        let mut settle = vec![T::BYTEA_ARRAY, T::UUID_ARRAY, T::INT8_ARRAY, T::TEXT_ARRAY];
        settle.extend([T::INT8_ARRAY, T::INT8_ARRAY, T::TEXT_ARRAY, T::TEXT_ARRAY]);
        settle.extend([T::BYTEA_ARRAY, T::TEXT_ARRAY, T::TEXT_ARRAY, T::INT8_ARRAY]);
        settle.extend([T::TEXT_ARRAY, T::INT4_ARRAY, T::TEXT_ARRAY, T::TEXT]);
        let mut put = vec![T::BYTEA_ARRAY, T::INT8_ARRAY, T::INT8_ARRAY];
        put.extend([T::UUID_ARRAY, T::UUID_ARRAY, T::INT8_ARRAY]);
        put.extend(std::iter::repeat_n(T::TIMESTAMPTZ_ARRAY, 6));
        put.extend([T::INT4_ARRAY, T::BOOL_ARRAY, T::TEXT_ARRAY, T::BYTEA_ARRAY]);
        put.extend(texts(7));
        put.push(T::BYTEA_ARRAY);
        put.extend(texts(4));
        put.extend([T::BYTEA_ARRAY, T::TEXT_ARRAY, T::INT4_ARRAY, T::TEXT_ARRAY, T::TEXT_ARRAY]);
        put.push(T::TEXT);
        let renew = vec![T::BYTEA_ARRAY, T::UUID_ARRAY, T::INT8_ARRAY, T::INT8_ARRAY];
        let versions = vec![T::BYTEA_ARRAY, T::INT8_ARRAY, T::TEXT_ARRAY, T::TIMESTAMPTZ_ARRAY];
        let list = vec![T::BYTEA, T::TEXT, T::TEXT, T::TEXT, T::INT8];
        Self {
            claim: bind(include_str!("sql/claim.sql"), claim),
            read: bind(include_str!("sql/read.sql"), vec![T::BYTEA_ARRAY]),
            renew: bind(include_str!("sql/renew.sql"), renew),
            settle: bind(include_str!("sql/settle.sql"), settle),
            import: bind(include_str!("sql/import.sql"), put[..put.len() - 1].to_vec()),
            put: bind(include_str!("sql/put.sql"), put),
            purge: bind(include_str!("sql/purge.sql"), vec![T::INT8]),
            due: bind(include_str!("sql/due.sql"), vec![]),
            due_records: bind(include_str!("sql/due_records.sql"), vec![T::INT8, T::INT8]),
            postpone: bind(include_str!("sql/postpone.sql"), vec![T::INT8]),
            defer: bind(include_str!("sql/defer.sql"), vec![T::BYTEA_ARRAY]),
            purge_versions: bind(include_str!("sql/purge_versions.sql"), versions),
            list: bind(include_str!("sql/list.sql"), list),
            stats: bind(include_str!("sql/stats.sql"), vec![]),
            sentinel: bind(include_str!("sql/sentinel.sql"), vec![]),
            new_sentinel: bind(include_str!("sql/new_sentinel.sql"), vec![]),
            mark_awaited: bind(include_str!("sql/await.sql"), vec![T::BYTEA]),
            try_lock: bind("SELECT pg_try_advisory_xact_lock($1::bigint)", vec![T::INT8]),
            set_operation: bind(include_str!("sql/set_operation.sql"), vec![T::TEXT]),
            transaction_id: bind("SELECT pg_current_xact_id()::text, pg_backend_pid()", vec![]),
            transaction_status: bind(include_str!("sql/status.sql"), vec![T::TEXT, T::INT4]),
            #[cfg(feature = "tiered")]
            generation: bind(include_str!("sql/generation.sql"), vec![]),
            #[cfg(feature = "tiered")]
            next_generation: bind(include_str!("sql/next_generation.sql"), vec![]),
        }
    }
}
