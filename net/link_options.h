// How daemons are linked with each other, and what must hold.
#ifndef BATON_NET_LINK_OPTIONS_H_
#define BATON_NET_LINK_OPTIONS_H_

#include <chrono>
#include <map>
#include <string>

#include "base/result.h"
#include "base/time.h"

namespace baton::net {

// Between a central batond and the nodes' frontends.
struct LinkOptions {
  // batond: where nodes' frontends connect; empty: nowhere. Without a secret key only loopback
  // addresses may be listened on.
  std::string listen;
  // This program's key pair; made by `baton keygen`.
  std::string secret_key_file;
  // batond: node name → the node's public key. Others are refused.
  std::map<std::string, std::string> nodes;
  // batond: a file of more of them, as ReadNodeKeys() reads it, which may come later and change;
  // where both name a node, `nodes` counts. Empty: none.
  std::string nodes_file;
  // baton-frontend: where batond listens, and its public key (empty: loopback without keys).
  std::string connect = "tcp://127.0.0.1:7411";
  std::string server_public_key;
  // Instead of it a file, as ReadPublicKey() reads it, which may come later and change.
  std::string server_public_key_file;
  Duration heartbeat = std::chrono::milliseconds(200);
  // Silence of the other side after which the link counts as cut.
  Duration lost_after = std::chrono::seconds(1);

  // Shows `v` each key of [zmq] (config/options.h).
  template <class V>
  void Visit(V& v) {
    using std::chrono::milliseconds;
    v.Text(
        "listen", listen,
        "Where nodes connect, such as \"tcp://127.0.0.1:7411\"; empty: nowhere. Addresses other\n"
        "than loopback need secret_key_file.");
    v.Text("secret_key_file", secret_key_file, "Made by: baton keygen PATH");
    v.Time("heartbeat", heartbeat, milliseconds(10), std::chrono::seconds(60),
           "Each side of a link says something at least this often.");
    v.Time("lost_after", lost_after, milliseconds(50), std::chrono::hours(1),
           "Silence after which a link counts as cut.");
    v.Text("connect", connect, "baton-frontend: where batond listens.");
    v.Text("server_public_key", server_public_key,
           "baton-frontend: batond's public key; empty: loopback without keys.");
    v.Text("server_public_key_file", server_public_key_file,
           "baton-frontend: instead of it, a file with it. It may come later, and is read again\n"
           "when it changes.");
    v.Text("nodes_file", nodes_file,
           "A file of more nodes than [zmq.nodes] has, a line \"NAME KEY\" each. It may come\n"
           "later, and is read again when it changes.");
    v.Table("nodes", nodes,
            "Who may connect: node name = \"its public key\" (the .pub file of its key pair).");
  }
};

// To another batond that keeps the ledger of the whole cluster and has the teams' file. This one
// goes on granting its own tokens, whatever becomes of it.
struct UpstreamOptions {
  std::string connect;                 // such as "tcp://central:7411"; empty: none
  std::string server_public_key;       // its; ours is LinkOptions::secret_key_file
  std::string server_public_key_file;  // instead, as in LinkOptions

  // Shows `v` each key of [upstream] (config/options.h).
  template <class V>
  void Visit(V& v) {
    v.Text(
        "connect", connect,
        "The batond that keeps the ledger of the cluster; empty: none. It receives the usage of\n"
        "this node and sends the teams.");
    v.Text("server_public_key", server_public_key, "Its public key; empty: loopback without keys.");
    v.Text("server_public_key_file", server_public_key_file,
           "Instead of it, a file with it. It may come later, and is read again when it changes.");
  }
};

// What must hold between them. kInvalid: a sentence that names the keys.
Result<void> CheckLinks(const LinkOptions& link, const UpstreamOptions& upstream);

}  // namespace baton::net

#endif  // BATON_NET_LINK_OPTIONS_H_
