//! What every daemon does: run directories, pid files, detaching, the monitor process, standard options and control commands.
