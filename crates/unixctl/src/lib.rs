//! The control socket behind `ovs-appctl`: server and client.
