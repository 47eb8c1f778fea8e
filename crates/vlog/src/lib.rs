//! Log levels by module and destination, and the log line format of Open vSwitch.
