//! Both ends of connections, with keys and certificates from the openssl program.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tls::{CaCert, Config, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn openssl(words: &[&str]) {
    let done = Command::new("openssl").args(words).output().expect("the openssl program is there");
    assert!(done.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A CA in a folder, and the files of identities that it signs.
struct Authority(PathBuf);

impl Authority {
    fn new(directory: &Path, name: &str) -> Self {
        let this = Self(directory.join(name));
        std::fs::create_dir(&this.0).expect("a folder");
        let (key, certificate) = (this.file("ca-key.pem"), this.file("ca.pem"));
        let how = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"];
        openssl(
            &[&["req", "-x509"], &how[..], &["-subj", &format!("/CN={name}"), "-keyout", &key, "-out", &certificate]]
                .concat(),
        );
        this
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// An identity that trusts this CA.
    fn identity(&self, name: &str) -> Config {
        let [key, request, certificate, extensions] =
            ["key", "request", "cert", "extensions"].map(|what| self.file(&format!("{name}-{what}.pem")));
        let how = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        openssl(&[&["req"], &how[..], &["-subj", &format!("/CN={name}"), "-keyout", &key, "-out", &request]].concat());
        std::fs::write(&extensions, "basicConstraints=CA:FALSE\n").expect("a file");
        let (ca, ca_key) = (self.file("ca.pem"), self.file("ca-key.pem"));
        let sign = ["x509", "-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial", "-days", "3650"];
        openssl(&[&sign[..], &["-extfile", &extensions, "-out", &certificate]].concat());
        Config {
            private_key: Some(key.into()),
            certificate: Some(certificate.into()),
            ca_cert: Some(CaCert::File(ca.into())),
            ..Config::default()
        }
    }
}

/// Serves one client on this thread.
fn serve<T>(listener: &TcpListener, serve: impl AsyncFnOnce(tokio::net::TcpStream) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (stream, _) = listener.accept().expect("a client");
        stream.set_nonblocking(true).expect("sockets can be");
        serve(tokio::net::TcpStream::from_std(stream).expect("a socket")).await
    })
}

/// Returns true if the client got the server's answer, and the server the client's message.
fn talk(client: &Arc<Tls>, server: &Arc<Tls>) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    let server = Arc::clone(server);
    let serving = std::thread::spawn(move || {
        serve(&listener, async |stream| {
            let mut stream = tls::accept(&server, "client", stream).await.ok()?;
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).await.ok()?;
            stream.write_all(&vec![7; 100_000]).await.ok()?;
            stream.shutdown().await.ok()?;
            Some(bytes == *b"hello")
        })
    });
    let socket = TcpStream::connect(address).expect("it listens");
    let answered = tls::blocking::connect(client, "server", socket).is_ok_and(|mut stream| {
        let mut answer = Vec::new();
        stream.write_all(b"hello").is_ok() && stream.read_to_end(&mut answer).is_ok() && answer == vec![7; 100_000]
    });
    serving.join().expect("no panic") == Some(true) && answered
}

#[test]
fn peers_with_certificates_of_the_ca_connect() {
    let directory = tempfile::tempdir().expect("a folder");
    let (ca, other) = (Authority::new(directory.path(), "ca"), Authority::new(directory.path(), "other"));
    let (server, client) = (ca.identity("server"), ca.identity("client"));
    let tls = |config: &Config| Tls::new(config.clone());
    assert!(talk(&tls(&client), &tls(&server)));
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        assert!(talk(
            &tls(&Config { protocols: protocols.parse().expect("a version"), ..client.clone() }),
            &tls(&server)
        ));
    }
    let stranger = other.identity("stranger");
    assert!(!talk(&tls(&stranger), &tls(&server)));
    assert!(!talk(&tls(&Config { ca_cert: client.ca_cert.clone(), ..stranger.clone() }), &tls(&server)));
    assert!(!talk(&tls(&client), &tls(&stranger)));
    // Two peers that trust all others accept each other's unknown certificates.
    let careless = |config: &Config| tls(&Config { ca_cert: Some(CaCert::None), ..config.clone() });
    assert!(talk(&careless(&client), &careless(&stranger)));
    // A CA's own certificate is valid for peers with that CA, and for no others.
    let own = Config {
        private_key: Some(ca.file("ca-key.pem").into()),
        certificate: Some(ca.file("ca.pem").into()),
        ..client.clone()
    };
    assert!(talk(&tls(&own), &tls(&own)));
    assert!(!talk(&tls(&own), &tls(&stranger)));
}

#[test]
fn files_that_change_count_at_once() {
    let directory = tempfile::tempdir().expect("a folder");
    let (old, new) = (Authority::new(directory.path(), "old"), Authority::new(directory.path(), "new"));
    let (config, before, after) = (old.identity("server"), old.identity("client"), new.identity("client"));
    let server = Tls::new(config.clone());
    assert!(talk(&Tls::new(before.clone()), &server));
    let renewed = new.identity("server");
    let copy = |from: &Option<PathBuf>, to: &Option<PathBuf>| {
        std::fs::copy(from.as_ref().expect("a file"), to.as_ref().expect("a file")).expect("a copy");
    };
    copy(&renewed.private_key, &config.private_key);
    // The key does not match the certificate: the previous files stay in use.
    assert!(talk(&Tls::new(before.clone()), &server));
    copy(&renewed.certificate, &config.certificate);
    std::fs::copy(new.file("ca.pem"), old.file("ca.pem")).expect("a copy");
    assert!(talk(&Tls::new(after), &server));
    assert!(!talk(&Tls::new(Config { ca_cert: Some(CaCert::None), ..before }), &server));
}

#[test]
fn the_first_server_is_believed() {
    let directory = tempfile::tempdir().expect("a folder");
    let (ca, other) = (Authority::new(directory.path(), "ca"), Authority::new(directory.path(), "other"));
    let server = Tls::new(Config { peer_ca_cert: Some(ca.file("ca.pem").into()), ..ca.identity("server") });
    let kept = directory.path().join("kept.pem");
    let client = Tls::new(Config { ca_cert: Some(CaCert::Bootstrap(kept.clone())), ..ca.identity("client") });
    // A peer that does not send its CA's certificate cannot bootstrap.
    assert!(!talk(&client, &Tls::new(ca.identity("silent"))));
    assert!(!kept.exists());
    assert!(!talk(&client, &server));
    assert!(kept.exists());
    assert!(talk(&client, &server));
    let impostor = Config { peer_ca_cert: Some(other.file("ca.pem").into()), ..other.identity("server") };
    assert!(!talk(&client, &Tls::new(Config { ca_cert: Some(CaCert::None), ..impostor })));
    // A client cannot bootstrap either.
    let open = directory.path().join("open.pem");
    let server = Tls::new(Config { ca_cert: Some(CaCert::Bootstrap(open.clone())), ..ca.identity("open") });
    let client = Config { peer_ca_cert: Some(ca.file("ca.pem").into()), ..ca.identity("showing") };
    assert!(!talk(&Tls::new(client.clone()), &server));
    assert!(!open.exists());
    std::fs::copy(ca.file("ca.pem"), &open).expect("a copy");
    assert!(talk(&Tls::new(client), &server));
}

#[test]
fn unusable_files_are_named() {
    let directory = tempfile::tempdir().expect("a folder");
    let ca = Authority::new(directory.path(), "ca");
    let config = ca.identity("one");
    let error = |config: Config| Tls::new(config).check().expect_err("it cannot be used").to_string();
    assert_eq!(error(Config::default()), "Private key must be configured to use SSL");
    assert!(error(Config { private_key: Some("/nonexistent".into()), ..config.clone() }).starts_with("/nonexistent: "));
    let wrong = Config { private_key: config.certificate.clone(), ..config.clone() };
    assert!(error(wrong).contains("no private key found"));
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "").expect("a file");
    assert!(error(Config { certificate: Some(empty.clone()), ..config.clone() }).contains("no certificate found"));
    assert!(error(Config { ca_cert: Some(CaCert::File(empty)), ..config.clone() }).contains("no certificate found"));
    let other = ca.identity("two");
    let unfit = Config { private_key: other.private_key, ..config.clone() };
    assert!(Tls::new(unfit).check().is_err());
    assert!(Tls::new(config).check().is_ok());
}

#[test]
fn one_thread_reads_while_another_one_cannot_write() {
    const MUCH: usize = 64 << 20;
    let directory = tempfile::tempdir().expect("a folder");
    let ca = Authority::new(directory.path(), "ca");
    let (server, client) = (Tls::new(ca.identity("server")), Tls::new(ca.identity("client")));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    // It writes all its data before it reads.
    let serving = std::thread::spawn(move || {
        serve(&listener, async |stream| {
            let mut stream = tls::accept(&server, "client", stream).await.expect("a handshake");
            let mut byte = [0];
            stream.read_exact(&mut byte).await.expect("the client writes");
            // In records of all sizes, so that they arrive in pieces of all sizes.
            let all = vec![7; MUCH];
            let mut rest = &all[..];
            for n in (1..).map(|i: usize| i * 7919 % 16_001) {
                let (record, behind) = rest.split_at(n.min(rest.len()));
                stream.write_all(record).await.expect("the client reads");
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            stream.flush().await.expect("the client reads");
            let mut left = MUCH - 1;
            let mut chunk = vec![0; 1 << 16];
            while left > 0 {
                left -= stream.read(&mut chunk).await.expect("the client writes");
            }
        });
    });
    let socket = TcpStream::connect(address).expect("it listens");
    // It fails instead of blocking for ever.
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&socket, Some(std::time::Duration::from_secs(60))).expect("sockets can be");
    }
    let mut stream = tls::blocking::connect(&client, "server", socket).expect("a handshake");
    let mut writer = stream.clone();
    let writing = std::thread::spawn(move || writer.write_all(&vec![8; MUCH]).is_ok());
    let mut chunk = vec![0; 1 << 16];
    let mut left = MUCH;
    while left > 0 {
        let n = stream.read(&mut chunk).expect("the server writes");
        assert!(n > 0 && chunk[..n].iter().all(|byte| *byte == 7));
        left -= n;
    }
    assert!(writing.join().expect("no panic"));
    serving.join().expect("no panic");
}

/// The first message of a client with this server name.
fn first_words(client: &Arc<Tls>, name: &str) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    let listening = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut bytes = vec![0; 4096];
        let n = stream.read(&mut bytes).expect("it says something");
        bytes.truncate(n);
        bytes
    });
    let socket = TcpStream::connect(address).expect("it listens");
    assert!(tls::blocking::connect(client, name, socket).is_err(), "nobody answers");
    listening.join().expect("no panic")
}

/// RFC 6066 section 3: host names, and no addresses.
#[test]
fn servers_receive_the_name_they_are_called_by() {
    let directory = tempfile::tempdir().expect("a folder");
    let config = Authority::new(directory.path(), "ca").identity("client");
    let named = Config { server_name: Some("other.example.org".into()), ..config.clone() };
    let (plain, named) = (Tls::new(config), Tls::new(named));
    let says = |bytes: &[u8], name: &str| bytes.windows(name.len()).any(|part| part == name.as_bytes());
    let said = first_words(&plain, "ssl:db.example.org:6640");
    assert!(says(&said, "db.example.org"));
    let said = first_words(&named, "ssl:db.example.org:6640");
    assert!(says(&said, "other.example.org") && !says(&said, "db.example.org"));
    assert!(says(&first_words(&named, "ssl:127.0.0.1:6640"), "other.example.org"));
    assert!(!says(&first_words(&plain, "ssl:127.0.0.1:6640"), "127.0.0.1"));
}
