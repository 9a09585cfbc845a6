#include "k8s/device_plugin/unix_server.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <chrono>
#include <utility>

namespace baton::k8s {

FileId FileId::Of(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return {};
  return {st.st_dev, st.st_ino, st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
}

UnixServer::UnixServer(std::string path, std::vector<grpc::Service*> services,
                       size_t message_bytes_max)
    : path_(std::move(path)),
      services_(std::move(services)),
      message_bytes_max_(message_bytes_max) {}
UnixServer::~UnixServer() { Stop(); }

bool UnixServer::serves() const { return server_ != nullptr && FileId::Of(path_) == socket_; }

bool UnixServer::Serve() {
  Stop();
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path_, grpc::InsecureServerCredentials());
  for (grpc::Service* service : services_) builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(static_cast<int>(message_bytes_max_));
  server_ = builder.BuildAndStart();
  socket_ = FileId::Of(path_);
  if (server_ != nullptr && socket_.there()) return true;
  // A kubelet that starts may have removed it already.
  Stop();
  return false;
}

void UnixServer::Stop() {
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  }
  server_.reset();
  socket_ = {};
}

}  // namespace baton::k8s
