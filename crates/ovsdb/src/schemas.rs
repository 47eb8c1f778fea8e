//! The schemas that this project ships, as JSON text.

/// The Open_vSwitch schema, version 8.8.0: every table and column of ovs-vswitchd.conf.db(5).
pub const OPEN_VSWITCH: &str = include_str!("../schemas/vswitch.ovsschema");

/// The hardware_vtep schema, version 1.7.0: every table and column of vtep(5).
///
/// Its checksum is that of Open vSwitch's file with the same interface: tools convert databases whose checksums
/// differ.
pub const HARDWARE_VTEP: &str = include_str!("../schemas/vtep.ovsschema");

/// The names and the texts of the schemas of new databases.
pub const ALL: &[(&str, &str)] = &[("Open_vSwitch", OPEN_VSWITCH), ("hardware_vtep", HARDWARE_VTEP)];

/// The schema of the database `_Server`, version 1.2.0, in which a server describes its databases (ovsdb-server(5)).
pub const SERVER: &str = include_str!("../schemas/_server.ovsschema");

#[cfg(test)]
mod tests {
    use crate::schema::DatabaseSchema;

    #[test]
    fn open_vswitch_schema_parses_and_writes_itself() {
        let schema = DatabaseSchema::parse(super::OPEN_VSWITCH).unwrap();
        assert_eq!((schema.name.as_str(), schema.version.as_str()), ("Open_vSwitch", "8.8.0"));
        assert_eq!(schema.tables().len(), 19);
        let again = DatabaseSchema::from_json(&schema.to_json()).unwrap();
        assert!(schema.equivalent(&again));
    }

    #[test]
    fn schemas_are_listed_by_their_names_and_write_themselves() {
        for (name, text) in super::ALL {
            let schema = DatabaseSchema::parse(text).unwrap();
            assert_eq!(schema.name, *name);
            assert!(schema.equivalent(&DatabaseSchema::from_json(&schema.to_json()).unwrap()));
        }
        let vtep = DatabaseSchema::parse(super::HARDWARE_VTEP).unwrap();
        assert_eq!((vtep.version.as_str(), vtep.tables().len()), ("1.7.0", 18));
    }

    #[test]
    fn schema_of_the_server_parses() {
        let schema = DatabaseSchema::parse(super::SERVER).unwrap();
        assert_eq!((schema.name.as_str(), schema.tables().len()), ("_Server", 1));
        assert!(schema.table("Database").is_some_and(|table| table.is_root && table.own_columns().count() == 8));
    }

    /// The checksum of POSIX cksum(1): a CRC over the bytes and then over their number.
    fn cksum(bytes: &[u8]) -> u32 {
        let count = bytes.len() as u64;
        let length = (0..8).map(|byte| (count >> (8 * byte)) as u8).take(8 - count.leading_zeros() as usize / 8);
        !bytes.iter().copied().chain(length).fold(0u32, |crc, byte| {
            (0..8).fold(crc ^ (u32::from(byte) << 24), |crc, _| {
                if crc & 0x8000_0000 == 0 { crc << 1 } else { (crc << 1) ^ 0x04c1_1db7 }
            })
        })
    }

    #[test]
    fn the_checksum_is_of_the_lines_that_do_not_speak_of_it() {
        let lines = super::OPEN_VSWITCH.split_inclusive('\n').filter(|line| !line.contains("cksum"));
        let text: String = lines.collect();
        let schema = DatabaseSchema::parse(super::OPEN_VSWITCH).unwrap();
        assert_eq!(schema.cksum, format!("{} {}", cksum(text.as_bytes()), text.len()));
    }

    #[test]
    fn columns_newer_than_8_3_exist() {
        let schema = DatabaseSchema::parse(super::OPEN_VSWITCH).unwrap();
        let columns = [
            ("Mirror", "filter"),
            ("IPFIX", "stats_interval"),
            ("IPFIX", "template_interval"),
            ("Flow_Sample_Collector_Set", "local_group_id"),
            ("Datapath", "ct_zone_default_limit"),
            ("CT_Zone", "limit"),
        ];
        for (table, column) in columns {
            assert!(schema.table(table).unwrap().column(column).is_some(), "{table}.{column}");
        }
        assert_eq!(schema.table("Flow_Table").unwrap().column("prefixes").unwrap().kind.max, 4);
    }
}
