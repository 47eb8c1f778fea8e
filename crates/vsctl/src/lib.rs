//! The program ovs-vsctl.
