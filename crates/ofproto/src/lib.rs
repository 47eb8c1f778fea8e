//! OpenFlow switches: tables, connections, upcalls, statistics and effects.
