#include "base/async_log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <spdlog/async.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "base/no_signals.h"

namespace baton {
namespace {

// How often a writer that waits looks whether it is to give up.
constexpr int kLookMs = 50;

// RFC 3339, in milliseconds.
constexpr const char* kTime = "%Y-%m-%dT%H:%M:%S.%e%z";
constexpr const char* kText = "%Y-%m-%dT%H:%M:%S.%e%z %l %v";

std::string_view TextOf(const spdlog::memory_buf_t& buffer) {
  return {buffer.data(), buffer.size()};
}

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    spdlog::memory_buf_t time;
    time_.format(message, time);
    const auto level = spdlog::level::to_string_view(message.level);
    const std::string_view text(message.payload.data(), message.payload.size());
    const nlohmann::ordered_json line{
        {"time", TextOf(time)},
        {"level", std::string_view(level.data(), level.size())},
        {"message", text},
    };
    const std::string written =
        line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    to.append(written.data(), written.data() + written.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  spdlog::pattern_formatter time_{kTime, spdlog::pattern_time_type::local, ""};
};

std::unique_ptr<spdlog::formatter> FormatterOf(LogFormat format) {
  if (format == LogFormat::kJson) return std::make_unique<JsonFormatter>();
  return std::make_unique<spdlog::pattern_formatter>(kText);
}

// `give_up` is asked while there is no room.
template <class GiveUp>
bool WriteUnless(int fd, const char* text, size_t size, const GiveUp& give_up) {
  while (size != 0) {
    pollfd room{fd, POLLOUT, 0};
    const int ready = poll(&room, 1, kLookMs);
    if (ready <= 0) {
      if (give_up()) return false;
      continue;
    }
    // A pipe that has room has it for this much.
    const ssize_t n = write(fd, text, std::min<size_t>(size, PIPE_BUF));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
      if (give_up()) return false;
      continue;
    }
    if (n <= 0) return false;  // nobody reads it any more, or the disk is full
    text += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::string ComplaintLine(LogFormat format, const std::string& program,
                          const std::string& message) {
  if (format == LogFormat::kText) return program + ": " + message + "\n";
  spdlog::memory_buf_t line;
  FormatterOf(format)->format({program, spdlog::level::err, message}, line);
  return std::string(TextOf(line));
}

bool WriteBefore(int fd, const char* text, size_t size, Instant until) {
  return WriteUnless(fd, text, size, [&] { return MonotonicNow() >= until; });
}

// Of the worker's thread, but for GiveUpAt().
class AsyncLog::Sink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit Sink(int fd) : fd_(fd) {}

  void GiveUpAt(Instant when) { give_up_at_ns_ = Nanos(when); }
  // `pool` is the worker's, whose end waits for it. (Who shared it might be the last to have it.)
  void Watch(spdlog::details::thread_pool* pool) { pool_ = pool; }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (const size_t lost = pool_->overrun_counter(); lost != lost_) {
      const std::string text =
          fmt::format("{} lines lost here: the log was not read", lost - lost_);
      lost_ = lost;
      Put({message.logger_name, spdlog::level::warn, text});
    }
    Put(message);
  }
  void flush_() override {}

 private:
  void Put(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    WriteUnless(fd_, line.data(), line.size(),
                [&] { return Nanos(MonotonicNow()) >= give_up_at_ns_.load(); });
  }

  const int fd_;
  std::atomic<int64_t> give_up_at_ns_{INT64_MAX};
  spdlog::details::thread_pool* pool_ = nullptr;
  size_t lost_ = 0;
};

struct AsyncLog::Worker {
  std::shared_ptr<spdlog::details::thread_pool> pool;
};

AsyncLog::AsyncLog(int fd, const std::string& name, LogFormat format)
    : sink_(std::make_shared<Sink>(fd)), worker_(new Worker) {
  {
    const NoSignals in_the_worker;
    worker_->pool = std::make_shared<spdlog::details::thread_pool>(kQueueMax, 1);
  }
  sink_->Watch(worker_->pool.get());
  auto logger = std::make_shared<spdlog::async_logger>(
      name, sink_, worker_->pool, spdlog::async_overflow_policy::overrun_oldest);
  logger->set_formatter(FormatterOf(format));
  spdlog::set_default_logger(std::move(logger));
}

AsyncLog::~AsyncLog() {
  auto silent = std::make_shared<spdlog::logger>("silent");
  silent->set_level(spdlog::level::off);
  spdlog::set_default_logger(std::move(silent));
  sink_->GiveUpAt(MonotonicNow() + kPatience);
  // The pool's end waits for its thread, and that may be stuck in a write that nothing ends: then
  // both are left behind.
  auto over = std::make_shared<std::promise<void>>();
  auto is_over = over->get_future();
  std::thread([pool = std::move(worker_->pool), over = std::move(over)]() mutable {
    pool.reset();
    over->set_value();
  }).detach();
  is_over.wait_for(2 * kPatience);
}

}  // namespace baton
