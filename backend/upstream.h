// Federation: a node's batond sends what is used there to a central one, which keeps the books of
// the cluster and says what teams have used and weigh. Tokens never cross this link, and a central
// batond that is away costs nothing but freshness.
//
//   node                                     central
//   BooksHello(node, source)          ──▶
//                                     ◀──    BooksWelcome(seq), TeamsState
//   BooksBatch(seq + 1)               ──▶    booked
//                                     ◀──    BooksAck(seq + 1)
//
// Batches wait in the node's own ledger until they are acknowledged. They hold cumulative totals,
// so one that is sent twice is booked once (ledger/ledger.h). Not thread safe: both live in
// their daemon's event loop.
#ifndef BATON_BACKEND_UPSTREAM_H_
#define BATON_BACKEND_UPSTREAM_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backend/books.h"
#include "config/options.h"
#include "net/zmq_socket.h"
#include "node/event_log.h"
#include "wire/codec.h"
#include "wire/messages.h"

namespace baton::backend {

// The node's side.
class Upstream {
 public:
  Upstream(boost::asio::io_context& io, const config::Options& options, std::string source,
           Books& books, node::EventLog& log);
  ~Upstream();

  // Begins to connect. Errors: the key file, the address.
  Result<void> Start();
  void Stop();
  // There is something new to send.
  void Booked();
  // A sentence while the other side does not answer; empty when all is well.
  std::string Trouble() const;

 private:
  // Nothing, where the other side's public key has not come yet.
  Result<void> Connect();
  // Where upstream.server_public_key_file has a key by now, or another, and where with keys the
  // other side is silent, as after a refusal.
  void ConnectAnew();
  void Receive(const std::vector<std::string_view>& parts);
  void SayHello();
  void SendNext();
  void Beat();

  boost::asio::io_context& io_;
  const config::Options& options_;
  const std::string node_;
  const std::string source_;
  Books& books_;
  node::EventLog& log_;
  net::ZmqContext context_;
  std::optional<net::ZmqSocket> dealer_;
  std::string server_key_;  // of the socket as it is
  boost::asio::steady_timer beat_;
  bool welcomed_ = false;
  bool sending_ = false;        // a batch is looked for, or on its way
  bool more_ = false;           // something was booked meanwhile
  uint64_t on_way_ = 0;         // the batch that was sent: its seq
  uint64_t on_way_number_ = 0;  // and its number in the spool; 0: none
  Instant heard_{};             // of the other side; at first, when this was started
  Instant connected_{};         // its socket was made
  Instant sent_{};              // the batch that is on its way
  bool said_away_ = false;
  std::string refused_;     // what the other side said against this node
  std::string teams_text_;  // of the teams that it sent last
  teams::Teams teams_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// The central side, behind the socket on which relays speak too.
class BooksServer {
 public:
  // Sends a frame to a peer of that socket; false when it is gone.
  using Send = std::function<bool(const std::string& identity, std::string_view frame)>;

  // Why a peer with that key may not send usage of the node; empty: it may.
  using WhyNot = std::function<std::string(std::string_view key, std::string_view node)>;

  BooksServer(boost::asio::io_context& io, Books& books, node::EventLog& log, Send send,
              WhyNot why_not);
  ~BooksServer();

  // Whether the frame is one of these messages; it is then answered. `key`: the peer's public
  // key; empty without keys.
  bool Take(const std::string& identity, std::string_view key, const wire::Frame& frame);
  // Tells all nodes how the teams stand. Those that are gone are forgotten.
  void TellTeams();

 private:
  void OnHello(const std::string& identity, const wire::BooksHello& hello);
  void OnBatch(const std::string& identity, const std::string& node,
               const wire::BooksBatch& message);
  // False when it is gone.
  bool TellTeams(const std::string& identity);
  // The teams' state as it is now.
  void WriteTeams();
  void BookedBatch(const std::string& node);
  template <class Message>
  void SendTo(const std::string& identity, const Message& message);

  boost::asio::io_context& io_;
  Books& books_;
  node::EventLog& log_;
  Send send_;
  WhyNot why_not_;
  struct Node {
    std::string identity;  // the newest
    Instant greeted{};     // it was answered last
    bool booking = false;  // a batch of it is not in the books yet
  };
  std::map<std::string, std::string> names_;  // by identity
  std::map<std::string, Node> nodes_;         // by name; each has one identity
  std::string teams_;                         // TeamsState, as it was last
  bool too_long_ = false;                     // it cannot be sent; that was said
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_UPSTREAM_H_
