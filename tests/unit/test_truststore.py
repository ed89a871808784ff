import ssl
import subprocess
from pathlib import Path

import certificates
import pytest

from almanac import java, truststore


def test_the_bundle_that_the_environment_names_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = certificates.make(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
    assert truststore.authorities() == [ssl.PEM_cert_to_DER_cert(made.authority.read_text())]


def test_java_reads_it(tmp_path: Path) -> None:
    made = certificates.make(tmp_path)
    store = tmp_path / "trusted.jks"
    truststore.write(store, [ssl.PEM_cert_to_DER_cert(made.authority.read_text())])
    program = tmp_path / "Count.java"
    program.write_text(
        """
        public class Count {
            public static void main(String[] args) throws Exception {
                System.out.println(java.security.KeyStore.getInstance(
                    new java.io.File(args[0]), args[1].toCharArray()).size());
            }
        }
        """
    )
    said = subprocess.run(
        [java.find().executable, program, store, truststore.PASSWORD], capture_output=True, text=True, check=False
    )
    assert said.stdout.strip() == "1", said.stderr
