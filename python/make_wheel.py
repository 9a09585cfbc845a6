#!/usr/bin/env python3
"""make_wheel.py FOLDER VERSION: the package `baton` as a wheel in FOLDER.

A wheel is a zip archive (https://packaging.python.org/specifications/binary-distribution-format/),
and this one has nothing to compile, so no build system is needed, and no network. The same sources
give the same bytes.
"""

import base64
import hashlib
import os
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
TAG = "py3-none-any"


def main() -> None:
    folder, version = sys.argv[1:]
    files = {}
    for name in sorted(os.listdir(os.path.join(HERE, "baton"))):
        if name.endswith(".py") or name == "py.typed":
            with open(os.path.join(HERE, "baton", name), "rb") as file:
                files["baton/" + name] = file.read()
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    with open(os.path.join(HERE, "..", "LICENSE"), "rb") as file:
        terms = file.read()
    about = f"baton-{version}.dist-info"
    files[f"{about}/LICENSE"] = terms
    files[f"{about}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: baton\nVersion: {version}\n"
        "Summary: Shares of a GPU from Python, by Baton\nHome-page: https://baton.dev\n"
        "License: Apache-2.0\nRequires-Python: >=3.8\nClassifier: Typing :: Typed\n"
        f"Description-Content-Type: text/markdown\n\n{readme}"
    ).encode()
    files[f"{about}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: make_wheel\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode()
    )
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{about}/RECORD"] = (record + f"{about}/RECORD,,\n").encode()

    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"baton-{version}-{TAG}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    print(path)


if __name__ == "__main__":
    main()
