//! What is in the file, its versions, and how one becomes the next.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, OptionalExtension as _};

use crate::{
    Error,
    record::{Record, State},
};

/// The application ID in the header of each store: "naas".
const APPLICATION_ID: i64 = 0x6e61_6173;

/// Statements that make each version of the file of the one before. Version 0 is an empty file.
const MIGRATIONS: &[&str] = &[
    // 1
    "CREATE TABLE record (key BLOB NOT NULL UNIQUE, value BLOB NOT NULL) STRICT;
     CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL) STRICT;",
];

/// What `sqlite_schema` has in the newest version.
const NEWEST: &[&str] = &[
    "CREATE TABLE record (key BLOB NOT NULL UNIQUE, value BLOB NOT NULL) STRICT",
    "CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL) STRICT",
];

/// What an error of SQLite means for the file at `path`.
pub(crate) fn refusal(path: &Path, why: &rusqlite::Error) -> Error {
    let path = path.to_owned();
    let text = why.to_string();
    match why.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full { path, why: text },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Error::ReadOnly { path, why: text },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::InUse { path, holder: "another program that reads it as a database".to_owned() }
        }
        Some(ErrorCode::NotADatabase) => Error::NotAStore { path, why: text },
        // Errors without a code are values of types that no store has; `Unknown` is what SQLite says of schemas and formats
        // that it does not understand.
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::Unknown) | None => Error::Corrupt { path, what: text },
        Some(_) => Error::Io { path, why: text },
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Brings the file to the newest version. Each step is a transaction.
pub(crate) fn migrate(connection: &Connection, path: &Path) -> Result<(), Error> {
    steps(connection, path, MIGRATIONS)
}

/// Refuses what is no store, or one of a newer version, before anything is written to it.
pub(crate) fn recognize(connection: &Connection, path: &Path) -> Result<(), Error> {
    done(connection, path, MIGRATIONS).map(drop)
}

/// The number of migrations that the file has behind it.
fn done(connection: &Connection, path: &Path, migrations: &[&str]) -> Result<usize, Error> {
    let failed = |why: rusqlite::Error| refusal(path, &why);
    let newest = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let found = pragma(connection, "user_version").map_err(failed)?;
    let application = pragma(connection, "application_id").map_err(failed)?;
    let objects = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    let empty = objects.map_err(failed)? == 0 && found == 0 && application == 0;
    if !empty && application != APPLICATION_ID {
        let why = format!("its application id is {application:#x}, not {APPLICATION_ID:#x}");
        return Err(Error::NotAStore { path: path.to_owned(), why });
    }
    if found > newest {
        return Err(Error::Newer { path: path.to_owned(), version: found, newest });
    }
    let done = usize::try_from(found).ok().filter(|done| empty || *done > 0);
    done.ok_or_else(|| corrupt(path, format!("its version is {found}")))
}

fn steps(connection: &Connection, path: &Path, migrations: &[&str]) -> Result<(), Error> {
    let failed = |why: rusqlite::Error| refusal(path, &why);
    let done = done(connection, path, migrations)?;
    for (index, statements) in migrations.iter().enumerate().skip(done) {
        let state = if index == 0 { first_state() } else { String::new() };
        let version = index + 1;
        let step = format!(
            "BEGIN IMMEDIATE; {statements} {state} PRAGMA application_id = {APPLICATION_ID}; \
             PRAGMA user_version = {version}; COMMIT;"
        );
        if let Err(why) = connection.execute_batch(&step) {
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK").map_err(failed)?;
            }
            return Err(failed(why));
        }
    }
    Ok(())
}

/// The state of a new store.
fn first_state() -> String {
    let bytes: String = State::default().encode().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("INSERT INTO state (id, value) VALUES (1, x'{bytes}');")
}

/// Reads the state alone.
pub(crate) fn read_state(connection: &Connection, path: &Path) -> Result<State, Error> {
    let mut statement = prepare(connection, path, "SELECT value FROM state WHERE id = 1")?;
    let bytes = statement.query_row([], |row| row.get::<_, Vec<u8>>(0)).optional();
    let bytes = bytes.map_err(|why| refusal(path, &why))?;
    let bytes = bytes.ok_or_else(|| corrupt(path, "the row of its state is missing"))?;
    State::decode(&bytes).map_err(|why| corrupt(path, format!("the row of its state: {why}")))
}

/// Checks the structure of the file, its schema and each row, and gives the state.
pub(crate) fn verify(connection: &Connection, path: &Path) -> Result<State, Error> {
    let failed = |why: rusqlite::Error| refusal(path, &why);
    let checked = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    let checked = checked.map_err(failed)?;
    if checked != "ok" {
        return Err(corrupt(path, checked));
    }
    let mut statement =
        prepare(connection, path, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")?;
    let schema = statement.query_map([], |row| row.get(0)).map_err(failed)?;
    let schema: Vec<String> = schema.collect::<Result<_, _>>().map_err(failed)?;
    if schema != NEWEST {
        return Err(corrupt(path, "its tables are not those of a store"));
    }
    read_all(connection, path, |_, _| ())
}

/// Hands each key and value to `each`, in their order, and checks them: a row that is wrong, missing or left over is an error.
/// What was handed out before an error counts for nothing.
pub(crate) fn read_all(
    connection: &Connection,
    path: &Path,
    mut each: impl FnMut(Vec<u8>, &[u8]),
) -> Result<State, Error> {
    let failed = |why: rusqlite::Error| refusal(path, &why);
    let state = read_state(connection, path)?;
    let mut found = State { term: state.term, revision: state.revision, ..State::default() };
    let mut statement = prepare(connection, path, "SELECT key, value FROM record ORDER BY key")?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let key: Vec<u8> = row.get(0).map_err(failed)?;
        let bytes = row.get_ref(1).and_then(|value| Ok(value.as_blob()?)).map_err(failed)?;
        let record = Record::decode(&key, bytes);
        let record =
            record.map_err(|why| corrupt(path, format!("the row of {}: {why}", key.escape_ascii())))?;
        if record.revision > state.revision {
            return Err(corrupt(path, format!("the row of {} is newer than the store", key.escape_ascii())));
        }
        found.add(record.checksum);
        each(key, record.value);
    }
    if found != state {
        let what = format!("it has {} rows that are not the {} of its state", found.rows, state.rows);
        return Err(corrupt(path, what));
    }
    Ok(state)
}

fn prepare<'a>(
    connection: &'a Connection,
    path: &Path,
    sql: &str,
) -> Result<rusqlite::CachedStatement<'a>, Error> {
    connection.prepare_cached(sql).map_err(|why| refusal(path, &why))
}

pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> Error {
    Error::Corrupt { path: path.to_owned(), what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: &str = "CREATE TABLE more (id INTEGER PRIMARY KEY) STRICT;";

    fn version(connection: &Connection) -> i64 {
        pragma(connection, "user_version").unwrap()
    }

    #[test]
    fn a_new_file_gets_the_newest_version() {
        let connection = Connection::open_in_memory().unwrap();
        migrate(&connection, Path::new("new")).unwrap();
        assert_eq!(version(&connection), MIGRATIONS.len() as i64);
        assert_eq!(verify(&connection, Path::new("new")), Ok(State::default()));
    }

    #[test]
    fn only_the_steps_that_are_missing_are_taken_and_each_once() {
        let connection = Connection::open_in_memory().unwrap();
        let path = Path::new("old");
        steps(&connection, path, &MIGRATIONS[..1]).unwrap();
        steps(&connection, path, &[MIGRATIONS[0], NEXT]).unwrap();
        assert_eq!(version(&connection), 2);
        steps(&connection, path, &[MIGRATIONS[0], NEXT]).unwrap();
    }

    #[test]
    fn a_step_that_fails_changes_nothing_and_can_be_taken_again() {
        let connection = Connection::open_in_memory().unwrap();
        let path = Path::new("old");
        steps(&connection, path, &MIGRATIONS[..1]).unwrap();
        let broken = format!("{NEXT} INSERT INTO nowhere VALUES (1);");
        assert!(steps(&connection, path, &[MIGRATIONS[0], &broken]).is_err());
        assert_eq!(version(&connection), 1);
        assert_eq!(verify(&connection, path), Ok(State::default()));
        steps(&connection, path, &[MIGRATIONS[0], NEXT]).unwrap();
    }

    #[test]
    fn a_newer_version_and_a_foreign_database_are_refused() {
        let connection = Connection::open_in_memory().unwrap();
        let path = Path::new("newer");
        steps(&connection, path, &[MIGRATIONS[0], NEXT]).unwrap();
        let error = migrate(&connection, path).unwrap_err();
        assert_eq!(error, Error::Newer { path: path.to_owned(), version: 2, newest: 1 });
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE other (x)").unwrap();
        assert!(matches!(migrate(&connection, path), Err(Error::NotAStore { .. })));
    }
}
