//! Database rows to running bridges, ports and interfaces, and back: the program ovs-vswitchd.
