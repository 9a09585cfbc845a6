#include "node/signals.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"

namespace baton::node {

Signals::Signals(boost::asio::io_context& io, std::initializer_list<int> signals)
    : descriptor_(io) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  BATON_CHECK(fd >= 0);
  descriptor_.assign(fd);
}

void Signals::Await(std::function<void(int)> on_signal) {
  on_signal_ = std::move(on_signal);
  Read();
}

void Signals::Stop() {
  boost::system::error_code ignored;
  descriptor_.close(ignored);
}

void Signals::Read() {
  using boost::asio::posix::descriptor_base;
  descriptor_.async_wait(descriptor_base::wait_read, [this](boost::system::error_code error) {
    if (error) return;
    signalfd_siginfo info;
    while (descriptor_.is_open() &&
           read(descriptor_.native_handle(), &info, sizeof info) == sizeof info) {
      on_signal_(static_cast<int>(info.ssi_signo));
    }
    if (descriptor_.is_open()) Read();
  });
}

}  // namespace baton::node
