//! The program ovs-ofctl.
