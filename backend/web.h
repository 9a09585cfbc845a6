// What batond serves over HTTP: the page, the API (docs/api/openapi.json) and /metrics. All of it
// is read-only.
// Not thread safe: lives in the event loop.
#ifndef BATON_BACKEND_WEB_H_
#define BATON_BACKEND_WEB_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>

#include "backend/arbiter.h"
#include "backend/books.h"
#include "backend/control.h"
#include "backend/slices.h"
#include "backend/status.h"
#include "config/options.h"
#include "devmgr/machine/nvml.h"
#include "net/metrics.h"
#include "net/server.h"
#include "node/event_log.h"

namespace baton::backend {

class Web {
 public:
  // `books`: null where there are none.
  Web(boost::asio::io_context& io, const config::Options& options, Arbiter& arbiter, Books* books,
      devmgr::Nvml& nvml, node::EventLog& log, std::function<DaemonStatus()> daemon);
  ~Web();

  // Errors: the address is in use or no address, the token's and the certificate's files.
  Result<void> Start();
  void Stop();
  // There is something new in the books.
  void Booked();
  uint16_t port() const { return server_.port(); }
  // Of the page, once started; empty: there is none.
  std::string url() const;

 private:
  void Status(net::HttpServer::Respond respond);
  void Timeline(const net::HttpRequest& request, net::HttpServer::Respond respond);
  void Metrics(net::HttpServer::Respond respond);
  void TellMetrics(const std::shared_ptr<net::MetricsSnapshot>& snapshot,
                   const net::HttpServer::Respond& respond);
  // A question to the books with these fields of the query.
  void Ask(nlohmann::json question, const net::HttpRequest& request,
           net::HttpServer::Respond respond);
  void Stream();
  // Makes a status that begins after now, in steps, the same for all who ask until then.
  using UseStatus = std::function<void(const std::shared_ptr<const node::LongAnswer>&)>;
  void WithStatus(UseStatus use);

  const config::Options& options_;
  Arbiter& arbiter_;
  Books* books_;
  devmgr::Nvml& nvml_;
  node::EventLog& log_;
  const std::function<DaemonStatus()> daemon_;
  const int64_t started_;  // seconds since 1970
  net::HttpServer server_;
  net::EventStream& stream_;
  boost::asio::steady_timer timer_;
  std::vector<UseStatus> asked_status_;  // for the next one
  Duration status_took_{0};              // of the loop's time: the last one
  Slices slices_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_WEB_H_
