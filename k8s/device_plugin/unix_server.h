// A gRPC server on a unix socket in a folder of the kubelet's, who removes sockets there when it
// starts.
#ifndef BATON_K8S_DEVICE_PLUGIN_UNIX_SERVER_H_
#define BATON_K8S_DEVICE_PLUGIN_UNIX_SERVER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace baton::k8s {

// Which file that is: another one after it was made anew. All zero: there is none.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t changed_s = 0;
  int64_t changed_ns = 0;

  static FileId Of(const std::string& path);
  bool there() const { return inode != 0; }
  friend bool operator==(const FileId&, const FileId&) = default;
};

// Not thread safe; the services are called from threads of gRPC's.
class UnixServer {
 public:
  // The services outlive it. `message_bytes_max`: of a request.
  UnixServer(std::string path, std::vector<grpc::Service*> services, size_t message_bytes_max);
  ~UnixServer();

  const std::string& path() const { return path_; }
  // It serves, and the socket's file is still its own.
  bool serves() const;
  // Anew. False: it cannot listen there.
  bool Serve();
  // Calls that run have 100 ms to end. gRPC removes the socket's file, whoever's it is by then:
  // never after the next one was made.
  void Stop();

 private:
  const std::string path_;
  const std::vector<grpc::Service*> services_;
  const size_t message_bytes_max_;
  std::unique_ptr<grpc::Server> server_;
  FileId socket_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_DEVICE_PLUGIN_UNIX_SERVER_H_
