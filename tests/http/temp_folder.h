// Files of a test, and a certificate.
#ifndef BATON_TESTS_HTTP_TEMP_FOLDER_H_
#define BATON_TESTS_HTTP_TEMP_FOLDER_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace baton::http {

class TempFolder {
 public:
  TempFolder() {
    char path[] = "/tmp/baton-http-XXXXXX";
    path_ = mkdtemp(path);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  // Writes a file there; its path.
  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

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

}  // namespace baton::http

#endif  // BATON_TESTS_HTTP_TEMP_FOLDER_H_
