//! OVSDB atoms, datums, schemas, conditions and the JSON-RPC connection (RFC 7047).
