//! The seam between datapath and switch: datapath actions, flows, upcalls and the `Dpif` trait.
