// The signals that tell a daemon to stop, or to read its configuration again.
#ifndef BATON_NODE_SIGNALS_H_
#define BATON_NODE_SIGNALS_H_

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <initializer_list>

namespace baton::node {

// Reads signals from a descriptor (signalfd(2)). They are blocked, so that none interrupts a call,
// and none is lost that comes before somebody waits for it.
//
// Construct it before the process starts a thread: a thread that does not block a signal would be
// given it, and a blocked one is inherited.
// Thread safety: of the io_context's thread alone.
class Signals {
 public:
  // Blocks `signals` in this thread and those that it starts from now on.
  Signals(boost::asio::io_context& io, std::initializer_list<int> signals);

  // `on_signal` is called on the io_context for each of them, with its number, until Stop().
  void Await(std::function<void(int)> on_signal);
  void Stop();

 private:
  void Read();

  boost::asio::posix::stream_descriptor descriptor_;
  std::function<void(int)> on_signal_;
};

}  // namespace baton::node

#endif  // BATON_NODE_SIGNALS_H_
