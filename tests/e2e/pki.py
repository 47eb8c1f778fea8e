"""Keys and certificates for tests, made by the openssl program."""

from pathlib import Path

from switch import run


class Authority:
    """A CA with a folder of its own."""

    def __init__(self, directory, name="ca"):
        self.directory = Path(directory)
        self.directory.mkdir(exist_ok=True)
        self.name = name
        self.certificate = self.directory / f"{name}-cert.pem"
        self.key = self.directory / f"{name}-key.pem"
        words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650", "-subj", f"/CN={name}"]
        run(["openssl", "req", "-x509", *words, "-keyout", self.key, "-out", self.certificate])

    def issue(self, name, algorithm="ec", days="3650"):
        """Returns the files of a new identity with a certificate by the CA: (key, certificate)."""
        key, request, certificate = (self.directory / f"{name}-{what}.pem" for what in ("key", "request", "cert"))
        how = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if algorithm == "ec" else ["-newkey", "rsa:2048"]
        run(["openssl", "req", *how, "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request])
        extensions = self.directory / "extensions"
        extensions.write_text("basicConstraints=CA:FALSE\n")
        words = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", days, "-extfile", extensions]
        run(["openssl", "x509", "-req", "-in", request, *words, "-out", certificate])
        return key, certificate

    def options(self, name, **how):
        """The options of a program with such an identity that trusts the CA."""
        key, certificate = self.issue(name, **how)
        return ["-p", key, "-c", certificate, "-C", self.certificate]
