#include "k8s/api/http.h"

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>

namespace baton::k8s {
namespace {

namespace bhttp = boost::beast::http;

constexpr uint32_t kHeaderMax = 64 << 10;
// Nothing that the parser leaves lying is longer: a header, or the beginning of a chunk.
constexpr size_t kUnparsedMax = 128 << 10;
constexpr size_t kReadSize = 32 << 10;

tl::unexpected<StreamError> NoHttp(const std::string& why) {
  return tl::unexpected(StreamError{StreamEnd::kBroken, "the answer is no good HTTP: " + why});
}

}  // namespace

struct HttpExchange::Parser : bhttp::response_parser<bhttp::string_body> {};

HttpExchange::HttpExchange(Stream& stream) : stream_(stream) {}
HttpExchange::~HttpExchange() = default;

// Reads until the parser has taken something, or is done.
StreamResult<void> HttpExchange::Step(Instant deadline) {
  while (true) {
    if (!in_.empty()) {
      boost::system::error_code error;
      size_t taken = 0;
      try {
        taken = parser_->put(boost::asio::const_buffer(in_.data(), in_.size()), error);
      } catch (const std::exception& thrown) {
        return NoHttp(thrown.what());
      }
      in_.erase(0, taken);
      if (error && error != bhttp::error::need_more) {
        if (error == bhttp::error::body_limit) {
          return NoHttp("it is larger than what was allowed for it");
        }
        return NoHttp(error.message());
      }
      if (taken > 0 || parser_->is_done()) return {};
      if (in_.size() > kUnparsedMax) return NoHttp("it has a line without an end");
    }
    const size_t before = in_.size();
    in_.resize(before + kReadSize);
    auto got = stream_.Read(in_.data() + before, kReadSize, deadline);
    in_.resize(before + (got ? *got : 0));
    if (!got) return tl::unexpected(got.error());
    if (*got == 0) {
      boost::system::error_code error;
      if (parser_->got_some()) parser_->put_eof(error);
      if (parser_->is_done() && !error) return {};
      return tl::unexpected(StreamError{StreamEnd::kBroken, "the connection was cut"});
    }
    heard_ = true;
  }
}

StreamResult<void> HttpExchange::ReadHeader(std::string_view request, Instant deadline) {
  reusable_ = false;
  heard_ = false;
  in_.clear();
  if (auto written = stream_.Write(request, deadline); !written) return written;
  // Interim answers (100, 103) come before the real one.
  for (int interim = 0; interim < 8; ++interim) {
    parser_ = std::make_unique<Parser>();
    parser_->header_limit(kHeaderMax);
    // Not boost::none: Beast of 1.74 then refuses every length that is announced.
    parser_->body_limit(UINT64_MAX);
    while (!parser_->is_header_done()) {
      if (auto step = Step(deadline); !step) return step;
    }
    if (parser_->get().result_int() / 100 != 1) {
      parser_->eager(true);
      return {};
    }
  }
  return NoHttp("it never gets beyond interim answers");
}

StreamResult<HttpAnswer> HttpExchange::Begin(std::string_view request, Instant deadline) {
  if (auto header = ReadHeader(request, deadline); !header) return tl::unexpected(header.error());
  HttpAnswer answer;
  const auto& head = parser_->get();
  answer.status = static_cast<int>(head.result_int());
  const auto after = head[bhttp::field::retry_after];
  uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(after.data(), after.data() + after.size(), seconds);
  if (error == std::errc() && end == after.data() + after.size()) {
    answer.retry_after = std::chrono::seconds(std::min(seconds, 86'400u));
  }
  return answer;
}

StreamResult<std::string> HttpExchange::Next(Instant deadline) {
  while (parser_->get().body().empty() && !parser_->is_done()) {
    // A length that was announced is reserved at once: nobody announces one for an endless answer.
    if (const auto length = parser_->content_length(); length && *length > (size_t{64} << 20)) {
      return NoHttp("it is larger than what was allowed for it");
    }
    if (auto step = Step(deadline); !step) return tl::unexpected(step.error());
  }
  if (parser_->is_done()) reusable_ = parser_->keep_alive() && in_.empty();
  return std::exchange(parser_->get().body(), std::string());
}

StreamResult<HttpAnswer> HttpExchange::Ask(std::string_view request, size_t body_max,
                                           Instant deadline) {
  auto answer = Begin(request, deadline);
  if (!answer) return answer;
  if (const auto length = parser_->content_length(); length && *length > body_max) {
    return NoHttp("it is larger than what was allowed for it");
  }
  while (!parser_->is_done()) {
    if (auto step = Step(deadline); !step) return tl::unexpected(step.error());
    if (parser_->get().body().size() > body_max) {
      return NoHttp("it is larger than what was allowed for it");
    }
  }
  reusable_ = parser_->keep_alive() && in_.empty();
  answer->body = std::move(parser_->get().body());
  return answer;
}

}  // namespace baton::k8s
