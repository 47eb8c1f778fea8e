//! Names of ports and tables, as reported by the switch.

use base::PortNo;
use flow::text::PortNames;
use std::collections::HashMap;

/// Maps between names and numbers. Ambiguous names are excluded.
#[derive(Debug, Clone, Default)]
pub struct Names {
    ports: HashMap<PortNo, String>,
    port_numbers: HashMap<String, Option<PortNo>>,
    tables: HashMap<u8, String>,
    table_numbers: HashMap<String, Option<u8>>,
}

impl Names {
    /// Adds a port.
    pub fn add_port(&mut self, port: PortNo, name: &str) {
        if !name.is_empty() {
            self.ports.insert(port, name.to_owned());
            self.port_numbers.entry(name.to_owned()).and_modify(|p| *p = None).or_insert(Some(port));
        }
    }

    /// Adds a table.
    pub fn add_table(&mut self, table: u8, name: &str) {
        if !name.is_empty() {
            self.tables.insert(table, name.to_owned());
            self.table_numbers.entry(name.to_owned()).and_modify(|t| *t = None).or_insert(Some(table));
        }
    }

    /// The names of both.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        other.ports.iter().for_each(|(p, n)| self.add_port(*p, n));
        other.tables.iter().for_each(|(t, n)| self.add_table(*t, n));
        self
    }
}

impl PortNames for Names {
    fn number(&self, name: &str) -> Option<PortNo> {
        self.port_numbers.get(name).copied().flatten()
    }

    fn name(&self, port: PortNo) -> Option<String> {
        let name = self.ports.get(&port)?;
        (self.port_numbers.get(name) == Some(&Some(port))).then(|| name.clone())
    }

    fn table_number(&self, name: &str) -> Option<u8> {
        self.table_numbers.get(name).copied().flatten()
    }

    fn table_name(&self, id: u8) -> Option<String> {
        let name = self.tables.get(&id)?;
        (self.table_numbers.get(name) == Some(&Some(id))).then(|| name.clone())
    }
}
