#include "node/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <thread>
#include <vector>

namespace baton::node {
namespace {

TEST(Signals, WhatComesBeforeAnybodyWaitsIsNotLost) {
  boost::asio::io_context io;
  Signals signals(io, {SIGTERM, SIGHUP});
  kill(getpid(), SIGHUP);
  std::vector<int> seen;
  signals.Await([&](int signal) {
    seen.push_back(signal);
    if (signal == SIGTERM) return signals.Stop();
    boost::asio::post(io, [] { kill(getpid(), SIGTERM); });
  });
  io.run();
  EXPECT_EQ(seen, (std::vector<int>{SIGHUP, SIGTERM}));
}

TEST(Signals, ReachNoThreadThatWasStartedLater) {
  boost::asio::io_context io;
  Signals signals(io, {SIGTERM});
  sigset_t blocked;
  std::thread([&] { pthread_sigmask(SIG_SETMASK, nullptr, &blocked); }).join();
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
}

}  // namespace
}  // namespace baton::node
