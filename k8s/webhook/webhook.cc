#include "k8s/webhook/webhook.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "k8s/api/base64.h"
#include "k8s/api/client.h"
#include "net/server.h"

namespace baton::k8s {

namespace {

Result<bool> PublishTo(Client& client, const Resource& resource, const std::string& name,
                       const std::vector<std::string>& wanted) {
  constexpr int kTries = 8;
  for (int i = 0;; ++i) {
    auto object = client.Get(resource, {{}, name});
    if (!object) {
      if (object.error().not_found()) return false;
      return Fail(ErrorCode::kUnavailable, object.error().message);
    }
    bool changed = false;
    const auto webhooks = object->find("webhooks");
    if (webhooks == object->end() || !webhooks->is_array()) return true;
    for (Json& webhook : *webhooks) {
      if (!webhook.is_object() || !webhook["clientConfig"].is_object()) continue;
      Json& config = webhook["clientConfig"];
      const std::string before = TextAt(config, "caBundle");
      std::string after = Base64(MergedBundle(FromBase64(before), wanted, WallNow()));
      if (after == before) continue;
      config["caBundle"] = std::move(after);
      changed = true;
    }
    if (!changed) return true;
    const auto written = client.Update(resource, {{}, name}, *object);
    if (written) return true;
    if (written.error().not_found()) return false;
    if (!written.error().conflict() || i + 1 == kTries) {
      return Fail(ErrorCode::kUnavailable, written.error().message);
    }
  }
}

}  // namespace

PublishAuthorities PublishToConfigurations(Client& client, std::string configuration) {
  return [&client, configuration = std::move(configuration)](
             const std::vector<std::string>& wanted) -> Result<void> {
    bool found = false;
    for (const Resource* resource :
         {&resources::kMutatingWebhooks, &resources::kValidatingWebhooks}) {
      auto done = PublishTo(client, *resource, configuration, wanted);
      if (!done) return tl::unexpected(done.error());
      found |= *done;
    }
    if (!found) {
      return Fail(ErrorCode::kNotFound,
                  "there is no MutatingWebhookConfiguration or ValidatingWebhookConfiguration '" +
                      configuration + "'; install the chart, or correct --configuration");
    }
    return {};
  };
}

// Requests and how long they took. Any thread.
class ReviewCounters {
 public:
  static constexpr std::array<double, 9> kBounds{0.0005, 0.001, 0.0025, 0.005, 0.01,
                                                 0.025,  0.05,  0.1,    1};

  void Count(AdmissionKind kind, const AdmissionVerdict& verdict, Duration took) {
    const size_t what = verdict.status != 200 ? 2 : verdict.allowed ? 0 : 1;
    ++verdicts_[static_cast<size_t>(kind)][what];
    const double seconds = static_cast<double>(Nanos(took)) * 1e-9;
    size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    ++buckets_[bucket];
    total_ns_ += static_cast<uint64_t>(std::max<int64_t>(0, Nanos(took)));
  }

  std::string Text() const {
    std::string text =
        "# HELP baton_webhook_reviews_total Reviews by result.\n"
        "# TYPE baton_webhook_reviews_total counter\n";
    constexpr std::array<std::string_view, 2> kKinds{"mutate", "validate"};
    constexpr std::array<std::string_view, 3> kVerdicts{"allowed", "refused", "malformed"};
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      for (size_t what = 0; what < kVerdicts.size(); ++what) {
        text += fmt::format("baton_webhook_reviews_total{{path=\"{}\",verdict=\"{}\"}} {}\n",
                            kKinds[kind], kVerdicts[what], verdicts_[kind][what].load());
      }
    }
    text +=
        "# HELP baton_webhook_review_seconds Time to make an answer.\n"
        "# TYPE baton_webhook_review_seconds histogram\n";
    uint64_t sum = 0;
    for (size_t i = 0; i <= kBounds.size(); ++i) {
      sum += buckets_[i].load();
      const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
      text += fmt::format("baton_webhook_review_seconds_bucket{{le=\"{}\"}} {}\n", bound, sum);
    }
    return text +
           fmt::format(
               "baton_webhook_review_seconds_sum {}\nbaton_webhook_review_seconds_count {}\n",
               static_cast<double>(total_ns_.load()) * 1e-9, sum);
  }

 private:
  std::array<std::array<std::atomic<uint64_t>, 3>, 2> verdicts_{};
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> buckets_{};
  std::atomic<uint64_t> total_ns_{0};
};

class Webhook::Impl {
 public:
  explicit Impl(WebhookOptions options)
      : options_(std::move(options)),
        rotation_(Named()),
        server_(options_.serve, &identity_,
                [this](const net::HttpRequest& request) { return Answer(request); }),
        metrics_(PlainOptions(), nullptr,
                 [this](const net::HttpRequest& request) { return AnswerOpen(request); }) {}
  ~Impl() { Stop(); }

  Result<void> Start() {
    const bool files = !options_.certificate_file.empty();
    if (files != !options_.key_file.empty()) {
      return Fail(ErrorCode::kInvalid, "a certificate needs its key; set both files, or neither");
    }
    if (!files && !options_.publish) {
      return Fail(ErrorCode::kInvalid,
                  "nothing says where the certificate's authority is to be published; set a "
                  "configuration, or certificate and key files");
    }
    admission_ = std::make_shared<AdmissionOptions>(options_.admission);
    if (auto ok = LookAtTeams(); !ok) return ok;
    if (files) {
      if (auto ok = LookAtFiles(); !ok) return ok;
    } else {
      if (auto ok = rotation_.Step(WallNow()); !ok) return ok;
      if (auto ok = Show(); !ok) return ok;
    }
    if (auto ok = server_.Start(); !ok) return ok;
    if (auto ok = metrics_.Start(); !ok) return ok;
    thread_ = std::thread([this] { Run(); });
    return {};
  }

  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    server_.Stop();
    metrics_.Stop();
    if (thread_.joinable()) thread_.join();
  }

  uint16_t port() const { return server_.port(); }
  uint16_t metrics_port() const { return metrics_.port(); }
  bool ready() const { return ready_.load() && !leaving_.load(); }
  void Leave() { leaving_ = true; }
  uint64_t rotations() const { return rotations_.load(); }

 private:
  RotationOptions Named() const {
    RotationOptions rotation = options_.rotation;
    if (rotation.names.empty()) rotation.names = {"localhost", "127.0.0.1"};
    return rotation;
  }
  net::HttpOptions PlainOptions() const {
    net::HttpOptions plain = net::ForPrograms(options_.metrics_listen);
    plain.connections_max = 32;
    plain.body_bytes_max = 1'024;
    return plain;
  }

  net::HttpResponse AnswerOpen(const net::HttpRequest& request) {
    if (request.method != "GET" && request.method != "HEAD") {
      return net::ErrorResponse(405, "use GET");
    }
    if (request.path == "/healthz") return {200, "ok\n", "text/plain"};
    if (request.path == "/readyz") {
      if (ready()) return {200, "ok\n", "text/plain"};
      return net::ErrorResponse(
          503, leaving_ ? "it is about to stop"
                        : "the API servers do not know the certificate's authority "
                          "yet");
    }
    if (request.path == "/metrics") return {200, Metrics(), "text/plain; version=0.0.4"};
    return net::ErrorResponse(
        404, "unknown path; use /mutate, /validate, /healthz, /readyz or /metrics");
  }

  net::HttpResponse Answer(const net::HttpRequest& request) {
    const bool mutate = request.path == "/mutate";
    if (!mutate && request.path != "/validate") return AnswerOpen(request);
    if (request.method != "POST") return net::ErrorResponse(405, "use POST for reviews");
    const Instant begin = MonotonicNow();
    const auto kind = mutate ? AdmissionKind::kMutate : AdmissionKind::kValidate;
    std::shared_ptr<const AdmissionOptions> admission;
    {
      const std::lock_guard lock(mutex_);
      admission = admission_;
    }
    AdmissionVerdict verdict = Review(request.body, kind, *admission);
    counters_.Count(kind, verdict, MonotonicNow() - begin);
    return {verdict.status, std::move(verdict.body)};
  }

  std::string Metrics() {
    const net::HttpServer::Counts counts = server_.counts();
    return counters_.Text() +
           fmt::format(
               "# HELP baton_webhook_certificate_rotations_total Certificate rotations.\n"
               "# TYPE baton_webhook_certificate_rotations_total counter\n"
               "baton_webhook_certificate_rotations_total {}\n"
               "# HELP baton_webhook_certificate_expiry_timestamp_seconds Unix time when the "
               "served "
               "certificate expires; 0 if its files are renewed by others.\n"
               "# TYPE baton_webhook_certificate_expiry_timestamp_seconds gauge\n"
               "baton_webhook_certificate_expiry_timestamp_seconds {}\n"
               "# HELP baton_webhook_publish_failures_total Writes of caBundle that failed.\n"
               "# TYPE baton_webhook_publish_failures_total counter\n"
               "baton_webhook_publish_failures_total {}\n"
               "# HELP baton_webhook_handshakes_failed_total TLS handshakes that failed.\n"
               "# TYPE baton_webhook_handshakes_failed_total counter\n"
               "baton_webhook_handshakes_failed_total {}\n"
               "# HELP baton_webhook_connections Open connections.\n"
               "# TYPE baton_webhook_connections gauge\n"
               "baton_webhook_connections {}\n",
               rotations_.load(), expiry_s_.load(), publish_failures_.load(),
               counts.handshakes_failed, counts.open);
  }

  void Run() {
    const bool files = !options_.certificate_file.empty();
    const Duration tick =
        files ? options_.files_every
              : std::clamp<Duration>(options_.rotation.propagation / 4,
                                     std::chrono::milliseconds(20), std::chrono::seconds(1));
    if (files) ready_ = true;
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      lock.unlock();
      const Instant now = MonotonicNow();
      if (now >= files_due_) {
        files_due_ = now + options_.files_every;
        Complain(LookAtTeams(), teams_trouble_);
        if (files) Complain(LookAtFiles(), files_trouble_);
      }
      if (!files) Turn(now);
      lock.lock();
      wake_.wait_for(lock, tick, [&] { return stopping_; });
    }
  }

  // Says a trouble once, and that it is over.
  static void Complain(const Result<void>& result, std::string& trouble) {
    const std::string now = result ? std::string() : result.error().message;
    if (now == trouble) return;
    if (!now.empty()) {
      spdlog::error("{}", now);
    } else {
      spdlog::info("over: {}", trouble);
    }
    trouble = now;
  }

  void Turn(Instant now) {
    const std::string before = rotation_.serving()->certificate;
    Complain(rotation_.Step(WallNow()), rotation_trouble_);
    if (rotation_.serving()->certificate != before) {
      Complain(Show(), rotation_trouble_);
      ++rotations_;
      spdlog::info("serves a new certificate");
    }
    if (now >= publish_due_ || rotation_.version() != published_) {
      // After a failure not at every turn.
      if (now < retry_due_) return;
      const uint64_t version = rotation_.version();
      auto done = options_.publish(rotation_.wanted());
      Complain(done, publish_trouble_);
      if (done) {
        published_ = version;
        publish_due_ = MonotonicNow() + options_.publish_every;
        rotation_.Published(WallNow());
      } else {
        ++publish_failures_;
        retry_due_ =
            MonotonicNow() + std::min<Duration>(std::chrono::seconds(2), options_.publish_every);
      }
    }
    ready_ = rotation_.ready(WallNow());
  }

  Result<void> Show() {
    const ServingCertificate& serving = *rotation_.serving();
    if (auto ok = identity_.Set(serving.certificate, serving.key); !ok) return ok;
    expiry_s_ = std::chrono::duration_cast<std::chrono::seconds>(serving.not_after).count();
    return {};
  }

  Result<void> LookAtFiles() {
    auto certificate = ReadFile(options_.certificate_file, net::kPemMax);
    if (!certificate) return tl::unexpected(certificate.error());
    auto key = ReadFile(options_.key_file, net::kPemMax);
    if (!key) return tl::unexpected(key.error());
    if (*certificate == shown_certificate_ && *key == shown_key_) return {};
    if (auto ok = identity_.Set(*certificate, *key); !ok) {
      return Fail(ok.error().code, options_.certificate_file + ": " + ok.error().message +
                                       (shown_key_.empty() ? "" : "; the one before is served on"));
    }
    if (!shown_key_.empty()) {
      ++rotations_;
      spdlog::info("serves the new certificate of {}", options_.certificate_file);
    }
    shown_certificate_ = std::move(*certificate);
    shown_key_ = std::move(*key);
    return {};
  }

  Result<void> LookAtTeams() {
    if (options_.teams_file.empty()) return {};
    auto text = ReadFile(options_.teams_file, teams::kFileMax);
    if (!text) return tl::unexpected(text.error());
    if (teams_read_ && *text == teams_text_) return {};
    auto parsed = teams::ParseTeams(*text, options_.teams_file);
    if (!parsed) return tl::unexpected(parsed.error());
    auto admission = std::make_shared<AdmissionOptions>(options_.admission);
    admission->teams = std::make_shared<const teams::Teams>(std::move(*parsed));
    teams_text_ = std::move(*text);
    teams_read_ = true;
    const std::lock_guard lock(mutex_);
    admission_ = std::move(admission);
    return {};
  }

  const WebhookOptions options_;
  net::TlsIdentity identity_;
  ReviewCounters counters_;
  std::atomic<bool> ready_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<uint64_t> rotations_{0};
  std::atomic<uint64_t> publish_failures_{0};
  std::atomic<int64_t> expiry_s_{0};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;                              // under mutex_
  std::shared_ptr<const AdmissionOptions> admission_;  // under mutex_

  // Of Start(), then of the thread.
  Rotation rotation_;
  uint64_t published_ = 0;
  Instant publish_due_{};
  Instant retry_due_{};
  Instant files_due_{};
  std::string shown_certificate_, shown_key_;
  std::string teams_text_;
  bool teams_read_ = false;
  std::string rotation_trouble_, publish_trouble_, files_trouble_, teams_trouble_;

  net::HttpServer server_;
  net::HttpServer metrics_;
  std::thread thread_;
};

Webhook::Webhook(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Webhook::~Webhook() = default;

Result<std::unique_ptr<Webhook>> Webhook::Start(WebhookOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (auto started = impl->Start(); !started) return tl::unexpected(started.error());
  return std::unique_ptr<Webhook>(new Webhook(std::move(impl)));
}

uint16_t Webhook::port() const { return impl_->port(); }
uint16_t Webhook::metrics_port() const { return impl_->metrics_port(); }
bool Webhook::ready() const { return impl_->ready(); }
uint64_t Webhook::rotations() const { return impl_->rotations(); }
void Webhook::Leave() { impl_->Leave(); }
void Webhook::Stop() { impl_->Stop(); }

}  // namespace baton::k8s
