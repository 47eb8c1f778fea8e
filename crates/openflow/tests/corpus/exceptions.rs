//! Where our text is not Open vSwitch's, on purpose.
