#!/usr/bin/env python3
"""package_test.py BUILD: the wheel is made and installed into a fresh environment, without network
and compiler, and baton_test.py runs there. Exit status 77: this machine cannot make environments.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))


def main() -> int:
    build = os.path.abspath(sys.argv[1])
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        print("skipped: python3-venv is not installed")
        return 77
    make = os.path.join(SOURCE, "python", "make_wheel.py")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # other users run it too
        wheels = [
            subprocess.run(
                [sys.executable, make, os.path.join(folder, copy), "1.2.3"],
                check=True, stdout=subprocess.PIPE, text=True,
            ).stdout.strip()
            for copy in ("one", "two")
        ]
        with open(wheels[0], "rb") as one, open(wheels[1], "rb") as two:
            assert one.read() == two.read(), "the same sources give the same bytes"
        fresh = os.path.join(folder, "venv")
        subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
        # No compiler is in the PATH, and nothing of this environment.
        alone = {"PATH": os.path.join(fresh, "bin"), "HOME": folder}
        python = os.path.join(fresh, "bin", "python")
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--no-index", wheels[0]],
            check=True, env=alone,
        )
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "check"], check=True,
                       env=alone, stdout=subprocess.DEVNULL)
        # Away from the sources, so that what is imported is what was installed.
        return subprocess.run(
            [python, os.path.join(HERE, "baton_test.py"), build], cwd=folder
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
