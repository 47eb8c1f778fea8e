//! The Unix domain sockets that the database may name as controllers.
//!
//! The switch often runs as root, and its database may be open to others. Unless started with `--no-self-confinement`, it
//! thus makes and connects to sockets in its own folder only, so that a row of the database can neither replace a file
//! elsewhere nor have the switch talk to another program.

use std::path::{Component, Path, PathBuf};

/// The folder of the switch's sockets, and whether controllers are confined to it.
#[derive(Clone, Debug)]
pub struct Confinement {
    /// The folder.
    pub rundir: PathBuf,
    /// False with `--no-self-confinement`.
    pub is_on: bool,
}

impl Confinement {
    /// The target of a socket of a bridge's own, for example `punix:/run/openvswitch/br0.mgmt`.
    pub fn own_target(&self, bridge: &str, suffix: &str) -> String {
        format!("punix:{}/{bridge}.{suffix}", self.rundir.display())
    }

    /// Returns why a bridge may not have a controller with this target; `None` if it may.
    pub fn refusal(&self, bridge: &str, target: &str) -> Option<String> {
        if !self.is_on {
            return None;
        }
        let rundir = self.rundir.display();
        let instead = format!(
            "or connect to \"unix:{rundir}/{bridge}.mgmt\" (which is always available without special configuration)."
        );
        if let Some(path) = target.strip_prefix("punix:") {
            let path = Path::new(path);
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let has_own_name = name.strip_prefix(bridge).is_some_and(|rest| rest.starts_with('.'));
            return (!has_own_name || path.parent() != Some(&self.rundir)).then(|| {
                format!(
                    "bridge {bridge}: Not adding Unix domain socket controller \"{target}\" due to possibility of \
                     overwriting local files. Instead, specify path in permitted format \"punix:{rundir}/{bridge}.*\" \
                     {instead}"
                )
            });
        }
        let path = Path::new(target.strip_prefix("unix:")?);
        let is_inside = path.starts_with(&self.rundir) && !path.components().any(|part| part == Component::ParentDir);
        // A name alone is that of a file in the folder.
        let is_name = path.file_name().is_some_and(|name| name == path.as_os_str());
        (!is_name && !is_inside).then(|| {
            format!(
                "bridge {bridge}: Not connecting to socket controller \"{target}\" due to possibility for remote \
                 exploit.  Instead, specify socket in permitted directory \"unix:{rundir}/\" {instead}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_outside_of_the_folder_are_refused() {
        let confined = Confinement { rundir: "/run/ovs".into(), is_on: true };
        let allowed = [
            "punix:/run/ovs/br0.controller",
            "punix:/run//ovs/br0.a",
            "unix:/run/ovs/x",
            "unix:/run/ovs//below/x",
            "unix:x",
            "tcp:127.0.0.1",
            "ptcp:6653",
        ];
        let refused = [
            "punix:/tmp/br0.controller",
            "punix:/run/ovs/br1.controller",
            "punix:/run/ovs/br0",
            "punix:/run/ovs/br0x.y",
            "punix:/run/ovs/br0./x",
            "punix:/run/ovs/br0.x/../../../tmp/y",
            "punix:/run/ovs/../ovs/br0.x",
            "punix:br0.x",
            "punix:",
            "unix:/tmp/x",
            "unix:below/x",
            "unix:/run/ovs/../x",
            "unix:..",
            "unix:/run/ovsx",
            "unix:/",
        ];
        for target in allowed {
            assert_eq!(confined.refusal("br0", target), None, "{target}");
        }
        let free = Confinement { is_on: false, ..confined.clone() };
        for target in refused {
            assert!(confined.refusal("br0", target).is_some(), "{target}");
            assert_eq!(free.refusal("br0", target), None, "{target}");
        }
        assert_eq!(confined.own_target("br0", "mgmt"), "punix:/run/ovs/br0.mgmt");
    }
}
