//! Schemas in files, for the commands of all tools.

use std::path::Path;

use ovsdb::DatabaseSchema;

/// Reads the schema in a file. The error is a whole line without the program's name.
pub(crate) fn read(path: &Path) -> Result<DatabaseSchema, String> {
    let name = path.display();
    let text = std::fs::read(path).map_err(|error| {
        let error = error.to_string();
        let error = error.split(" (os error").next().unwrap_or_default();
        format!("failed to read schema: \"{name}\" could not be read as JSON (error opening \"{name}\": {error})")
    })?;
    parse(path, &text)
}

/// Parses a schema, which messages call `path`.
pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<DatabaseSchema, String> {
    let name = path.display();
    let json = ovsdb::json_text::parse(text)
        .map_err(|error| format!("failed to read schema: \"{name}\" could not be read as JSON ({error})"))?;
    DatabaseSchema::from_json(&json).map_err(|error| {
        let details = format!("failed to parse \"{name}\" as ovsdb schema: {}", error.details().unwrap_or(""));
        error.clone().with_details(details).to_string()
    })
}
