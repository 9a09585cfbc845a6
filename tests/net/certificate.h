// A certificate for a test.
#ifndef BATON_TESTS_NET_CERTIFICATE_H_
#define BATON_TESTS_NET_CERTIFICATE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <string>

#include "tests/temp_folder.h"

namespace baton::net {

// A key and a certificate of its own for 127.0.0.1, made once.
struct Certificate {
  TempFolder folder;
  std::string certificate = folder / "cert.pem";
  std::string key = folder / "key.pem";
  Certificate() {
    const std::string command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
        "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout " +
        key + " -out " + certificate + " 2>/dev/null";
    EXPECT_EQ(system(command.c_str()), 0) << command;
    chmod(key.c_str(), 0600);
  }
};
inline const Certificate& TestCertificate() {
  static const Certificate certificate;
  return certificate;
}

}  // namespace baton::net

#endif  // BATON_TESTS_NET_CERTIFICATE_H_
