"""The package `baton` as it is installed, against a batond on a simulated GPU."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import baton

BUILD = sys.argv.pop(1)
BIN = os.path.join(BUILD, "bin")
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOOK = os.path.join(BUILD, "lib", "libbaton.so")
NOBODY = 65534


def eventually(holds, patience=20.0):
    end = time.monotonic() + patience
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def pods():
    return {pod["name"]: pod for pod in baton.status()["pods"]}


class Baton(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory(dir="/dev/shm")
        folder = cls.folder = cls.temp.name
        os.chmod(folder, 0o755)
        gpu = os.path.join(folder, "a.gpu")
        subprocess.run([os.path.join(BIN, "baton-simgpu"), "create", gpu], check=True,
                       stdout=subprocess.DEVNULL)
        os.chmod(gpu, 0o666)
        os.environ.update(
            BATON_SIM_DEVICES=gpu,
            LD_LIBRARY_PATH=os.path.join(BUILD, "lib", "sim"),
            BATON_SOCKET_DIR=os.path.join(folder, "run"),
            BATON_HOOK=HOOK,
        )
        os.environ.pop("LD_PRELOAD", None)
        config = os.path.join(folder, "batond.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                f'[server]\nsocket_dir = "{folder}/run"\nstate_dir = "{folder}/state"\n'
                f'lock_dir = "{folder}/lock"\n[http]\nlisten = ""\n'
                '[users]\nallow = "everybody"\nrequests_max = 1.0\n'
            )
        cls.log = open(os.path.join(folder, "log"), "w", encoding="utf-8")
        cls.daemon = subprocess.Popen([os.path.join(BIN, "batond"), "--config", config],
                                      stderr=cls.log)
        # What the README's examples run.
        train = os.path.join(folder, "train")
        with open(train, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ntest -n \"$BATON_TICKET\" || exit 9\n"
                       f"exec '{BIN}/baton-burn' --bursts 3 >/dev/null\n")
        os.chmod(train, 0o755)
        assert eventually(lambda: cls.answers()), "batond does not start"

    @staticmethod
    def answers():
        try:
            return baton.ask("ping")["mode"] == "enforce"
        except baton.BatonError:
            return False

    @classmethod
    def tearDownClass(cls):
        cls.daemon.terminate()
        cls.daemon.wait()
        cls.log.close()
        cls.temp.cleanup()

    def tearDown(self):
        self.assertEqual(pods(), {}, "nothing is left over")
        self.assertNotIn("BATON_TICKET", os.environ)

    def python(self, code, **how):
        """Runs it as a program of its own."""
        env = {**os.environ, **how.pop("env", {})}
        return subprocess.run([sys.executable, "-c", code], cwd=self.folder, env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)

    def test_is_what_was_installed(self):
        self.assertTrue(baton.__file__.startswith(sys.prefix), baton.__file__)
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(baton.__file__), "py.typed")))

    def test_examples_of_the_readme_run(self):
        with open(os.path.join(SOURCE, "python", "README.md"), encoding="utf-8") as file:
            examples = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        self.assertEqual(len(examples), 5)
        for code in examples:
            with self.subTest(code):
                env = {"LD_PRELOAD": HOOK} if "in_this_process" in code else {}
                done = self.python(code, env=env)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(pods(), {})

    def test_children_are_in_the_pod(self):
        with baton.pod(request=30, name="parent", memory="1GiB") as pod:
            self.assertFalse(pod.in_this_process)
            self.assertEqual(os.environ["BATON_TICKET"], pod.ticket)
            child = subprocess.Popen([os.path.join(BIN, "baton-burn"), "--seconds", "60",
                                      "--die-with-parent"], stdout=subprocess.DEVNULL)
            try:
                self.assertTrue(eventually(lambda: pods()["parent"]["launches"] > 0))
                self.assertEqual([c["pid"] for c in pods()["parent"]["clients"]], [child.pid])
                self.assertEqual(pods()["parent"]["request"], 30)
                self.assertEqual(pods()["parent"]["memory"], 1 << 30)
            finally:
                child.kill()
                child.wait()

    def test_a_process_that_was_started_with_the_hook_is_in_the_pod_itself(self):
        code = """
import ctypes, os, time, baton
def attached(pod):
    return any(c["pid"] == os.getpid() and c["pod"] == pod.name for c in baton.status()["clients"])
with baton.pod(request=30) as pod:
    visible = pod.in_this_process
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    end = time.monotonic() + (20 if visible else 0.2)  # the hook attaches in a thread of its own
    while not attached(pod) and time.monotonic() < end:
        time.sleep(0.02)
    print(visible, attached(pod))
with baton.pod(request=30) as late:
    print(late.in_this_process)
"""
        done = self.python(code, env={"LD_PRELOAD": HOOK})
        self.assertEqual(done.stdout, "True True\nFalse\n", done.stderr)
        # Without it the pod says so, and the process is not.
        done = self.python(code)
        self.assertEqual(done.stdout, "False False\nFalse\n", done.stderr)

    def test_the_environment_is_as_before(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = "7"
        try:
            before = dict(os.environ)
            with self.assertRaises(ZeroDivisionError):
                with baton.pod(request=10) as pod:
                    self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], pod.gpus[0])
                    _ = 1 / 0
            self.assertEqual(dict(os.environ), before)
            pod.close()  # twice is no mistake
        finally:
            del os.environ["CUDA_VISIBLE_DEVICES"]

    def test_names_get_a_number_where_they_are_taken(self):
        with baton.pod(request=10) as one:
            with baton.pod(request=10) as two:
                self.assertEqual(two.name, one.name + "-2")
            with self.assertRaises(baton.BatonError) as refused:
                with baton.pod(request=10, name=one.name):
                    pass
            self.assertEqual(refused.exception.code, "exists")
            self.assertEqual(os.environ["BATON_TICKET"], one.ticket)

    def test_a_lease_is_renewed_while_it_is_entered(self):
        with baton.lease(request=40, seconds=10) as lease:
            first = lease.until
            until = time.monotonic() + 20
            while lease.until == first and time.monotonic() < until:
                time.sleep(0.1)
            self.assertGreater(lease.until, first)
            self.assertIsNone(lease.ended())
        self.assertEqual(lease.ended(), "it was given back")

    def test_a_lease_that_is_not_renewed_ends_on_time(self):
        with baton.lease(request=40, seconds=1, renew=False) as lease:
            self.assertEqual(lease.ended(timeout=20), "its time is over")
            with self.assertRaises(baton.BatonError) as refused:
                lease.renew()
            self.assertEqual(refused.exception.code, "not_found")

    def test_a_lease_of_a_process_that_is_killed_ends_by_itself(self):
        code = ("import baton, os, signal\nbaton.lease(request=40, seconds=1).start()\n"
                "os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(self.python(code).returncode, -signal.SIGKILL)
        self.assertTrue(eventually(lambda: not pods()))

    def test_a_lease_waits_for_room_or_does_not(self):
        with baton.lease(request=80, seconds=60):
            for wait in (False, 1):
                with self.assertRaises(baton.BatonError) as refused:
                    with baton.lease(request=40, seconds=60, wait=wait):
                        pass
                self.assertEqual(refused.exception.code, "exhausted")
            self.assertEqual(len(baton.ask("leases")["leases"]), 1, "none is in the queue")
        first = baton.lease(request=80, seconds=1, renew=False)
        first.start()
        with baton.lease(request=40, seconds=60) as second:
            self.assertIn(second.name, pods())
            self.assertEqual(first.ended(), "its time is over")
        first.close()

    def test_who_may_not_open_the_operators_socket_asks_the_users(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become somebody else")
        code = ("import baton\nwith baton.pod(request=10, name='mine'):\n"
                "    print(baton.status()['pods'][0]['user'])\n"
                "try:\n    baton.ask('cordon', gpus=['0'])\n"
                "except baton.BatonError as error:\n    print(error.code)\n")
        try:
            done = self.python(code, user=NOBODY, group=NOBODY, extra_groups=[])
        except PermissionError:
            self.skipTest("this Python is root's alone")
        self.assertEqual(done.stdout, "nobody\ndenied\n", done.stderr)

    def test_errors_say_what_to_do(self):
        for call, code in (
            (lambda: baton.status(socket_dir="/nowhere"), "unavailable"),
            (lambda: baton.ask("nonsense"), "invalid"),
            (lambda: baton.pod(request=300).start(), "invalid"),
            (lambda: baton.pod(request=10, hook="/nowhere/libbaton.so").start(), "not_found"),
            (lambda: baton.pod(request=10, colour="red").start(), "invalid"),
        ):
            with self.assertRaises(baton.BatonError) as refused:
                call()
            self.assertEqual(refused.exception.code, code)
            self.assertGreater(len(str(refused.exception)), 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
