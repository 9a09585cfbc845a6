// How nodes and a central batond come to know each other's keys in a cluster, where nobody makes
// and hands them out. Each side makes its own pair on its own disk (baton keygen --keep), and no
// secret key ever leaves it. Public keys go by the API server:
//
//   node's key       ─▶ annotation baton.dev/public-key of its GpuNode ─▶ zmq.nodes_file of batond
//   central's key    ─▶ ConfigMap, data.public-key ─▶ zmq., upstream.server_public_key_file
//
// Whoever may write these objects says who is who: of GpuNodes an admission policy of the chart
// lets a node's agent write its own only; the ConfigMap is written by the central batond's pod
// alone.
//
// All of it is looked at again and again, so what is deleted or lost is made anew: a node's key is
// told each `tell_every`, and the files are written as soon as the objects change. While the API
// server is away the files stay as they are.
#ifndef BATON_K8S_KEYS_LINK_KEYS_H_
#define BATON_K8S_KEYS_LINK_KEYS_H_

#include <memory>
#include <string>

#include "base/time.h"
#include "k8s/api/client.h"

namespace baton::k8s {

struct LinkKeysOptions {
  std::string public_key_file;  // of the own pair
  ObjectName central_key;       // the ConfigMap
  Duration tell_every = std::chrono::minutes(1);
  Duration retry = std::chrono::seconds(2);  // after a failure
};

// On a node: tells its public key, and keeps central's in `central_key_file`.
class NodeLinkKeys {
 public:
  // Starts its threads. `client` outlives it.
  NodeLinkKeys(Client& client, LinkKeysOptions options, std::string node,
               std::string central_key_file);
  // Ends and joins. Call Client::Stop() before it where that should be soon.
  ~NodeLinkKeys();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Beside a central batond: tells its public key, and keeps in `nodes_file` the nodes that have one,
// "NAME KEY" each, as long as there is a Node of that name. Writes no list before it knows all.
class CentralLinkKeys {
 public:
  CentralLinkKeys(Client& client, LinkKeysOptions options, std::string nodes_file);
  ~CentralLinkKeys();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_KEYS_LINK_KEYS_H_
