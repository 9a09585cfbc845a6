// Long answers in steps, between which the loop grants tokens: one step at a time, whoever asked.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_SLICES_H_
#define BATON_BACKEND_SLICES_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>

namespace baton::backend {

class Slices {
 public:
  // A part of a work, which should take less than a millisecond. True: it was the last.
  using Step = std::function<bool()>;

  // `part`: all steps together take at most one part in so many of the loop's time.
  Slices(boost::asio::io_context& io, int part) : io_(io), part_(part), rest_(io) {}
  ~Slices() { *alive_ = false; }
  Slices(const Slices&) = delete;
  Slices& operator=(const Slices&) = delete;

  // Calls `step` from the loop until it is done, after those that were added before.
  void Add(Step step);

 private:
  void Later();
  void Run();

  boost::asio::io_context& io_;
  const int part_;
  boost::asio::steady_timer rest_;
  std::deque<Step> works_;
  bool under_way_ = false;  // Run() will be called
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_SLICES_H_
