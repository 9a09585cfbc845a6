#include "config/options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace baton::config {
namespace {

std::string ErrorOf(const std::string& text) {
  const auto options = ParseOptions(text, "batond.toml");
  return options ? "" : options.error().message;
}

TEST(Config, EmptyTextGivesTheDefaults) {
  const auto options = ParseOptions("", "batond.toml");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(PrintOptions(*options), PrintOptions(Options{}));
  for (const char* line : {"nodes = \"scarcity\"\n", "cards = \"scarcity\"\n"}) {
    EXPECT_NE(PrintOptions(*options).find(line), std::string::npos) << line;
  }
}

TEST(Config, WhatIsPrintedIsReadBackAsTheSame) {
  Options options;
  options.server.socket_dir = "/tmp/\"quoted\\";
  options.server.control_dir = "/run/control";
  options.server.mode = Mode::kObserve;
  options.log.format = LogFormat::kJson;
  options.scheduler.quota_max = std::chrono::microseconds(12'345);
  options.scheduler.drain_kill = true;
  options.overcommit = policy::Share(1'500'000);
  options.placement.policy = {devmgr::Rule::kSpread, devmgr::Rule::kRemainder, 250, 750};
  options.zmq.listen = "tcp://127.0.0.1:7411";
  options.http.hosts = {"gpu.example", "other \"quoted\""};
  options.ledger.prices = {{"", 2.5}, {"NVIDIA H200", 3.25}};
  options.ledger.prices.insert_or_assign(
      "NVIDIA T4", ledger::ModelPrices::Make(
                       {{ledger::WallTime{}, 0.5}, {ledger::WallTime(std::chrono::hours(12)), 1}})
                       .value());
  options.page = {"https://{node}:7412/", "https://batond.example/"};
  options.ledger.retention.minutes = std::chrono::hours(48);
  options.gpus.push_back({"GPU-a", "a GPU", uint64_t{3} << 30});
  options.gpus.push_back({"MI-0",
                          "AMD Instinct MI300X",
                          uint64_t{192} << 30,
                          "amd",
                          {{"ROCR_VISIBLE_DEVICES", "0"}, {"X", "\"quoted\""}}});
  spec::PodRequest pod;
  pod.name = "train";
  pod.share.request = policy::Share(125'000);
  pod.share.limit = policy::kWhole;
  pod.count = 1;
  pod.memory_part = policy::Share(125'000);
  pod.wishes = {"mig", {"a100 80gb"}, {"t4"}, {"0"}, "x", "y", "z"};
  options.pods.push_back({pod, ""});
  ASSERT_TRUE(spec::AddFlavor(options.flavors, "small", {{"request", 12.5}, {"memory", "4GiB"}}));
  ASSERT_TRUE(spec::AddFlavor(options.flavors, "2.quarter", {{"limit", 25}, {"memory", "25%"}}));
  options.ledger.weights = {{"", 0.5}, {"NVIDIA T4", 0.25}};
  const auto back = ParseOptions(PrintOptions(options), "printed");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(PrintOptions(*back), PrintOptions(options));
  EXPECT_EQ(back->placement.policy, options.placement.policy);
  EXPECT_EQ(back->log.format, LogFormat::kJson);
  EXPECT_EQ(back->ledger.prices, options.ledger.prices);
  EXPECT_EQ(back->ledger.weights, options.ledger.weights);
  EXPECT_EQ(back->gpus[0].vendor, "nvidia");
  EXPECT_EQ(back->gpus[1].vendor, "amd");
  EXPECT_EQ(back->gpus[1].environment, options.gpus[1].environment);
  EXPECT_EQ(back->pods[0].request.wishes, pod.wishes);
  EXPECT_EQ(back->pods[0].request.memory_part, policy::Share(125'000));
}

TEST(Config, APodOfTheFileMayNameAFlavorOfTheFile) {
  const auto options = ParseOptions(
      "[[pod]]\nname = \"a\"\nflavor = \"small\"\nlimit = 50\n[flavors]\n"
      "small = {request = 10, memory = \"4GiB\"}\n[flavors.large]\nlimit = 80\n",
      "batond.toml");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->flavors.size(), 2u);
  const spec::PodRequest& pod = options->pods.at(0).request;
  EXPECT_EQ(pod.share.request, policy::Share(100'000));
  EXPECT_EQ(pod.share.limit, policy::Share(500'000));
  EXPECT_EQ(pod.memory_cap, uint64_t{4} << 30);
  EXPECT_EQ(pod.flavor, "");
  EXPECT_EQ(ErrorOf("[[pod]]\nname = \"a\"\nflavor = \"small\""),
            "batond.toml:1: there is no flavor 'small': the operator offers none");
  EXPECT_EQ(ErrorOf("[flavors]\nsmall = {request = 10}\nbig = {request = 200}\n")
                .find("batond.toml:3: flavor big: request: "),
            0u);
}

TEST(Config, TimesArePrintedInTheirLargestWholeUnit) {
  Options options;
  options.scheduler.resend = std::chrono::milliseconds(1500);
  options.hook.open_after = std::chrono::minutes(90);
  const std::string text = PrintOptions(options);
  for (const char* line :
       {"keep_hours = \"9600h\"\n", "keep_minutes = \"288h\"\n", "keep_days = \"0s\"\n",
        "open_after = \"90m\"\n", "resend = \"1500ms\"\n", "every = \"10s\"\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  const auto back = ParseOptions(text, "printed");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->ledger.retention.hours, options.ledger.retention.hours);
  EXPECT_EQ(PrintOptions(*back), text);
  EXPECT_NE(ErrorOf("[ledger]\nkeep_fine = \"-1h\"\n").find("from \"0s\" to \"100000h\""),
            std::string::npos);
}

// What version 0.1 wrote: were it another text now, an upgrade would take back what `baton set`
// said.
TEST(Config, AnEntryThatDidNotChangeHasTheFingerprintOfEarlierVersions) {
  const auto options = ParseOptions(R"(
[[pod]]
name = "train"
request = 30
memory = "25%"
team = "research/vision"
user = "ada"
namespace = "ml"
priority = "high"
gpus = [0, "GPU-b"]
[[pod]]
name = "serve"
limit = "12.5"
memory = "2GiB"
count = 2
models = ["t4"]
not_models = ["a100", "h100"]
anti_affinity = "serve"
independent = true
uid = 1000
ticket = "0123456789abcdef"
)",
                                    "batond.toml");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->pods[0].fingerprint,
            "300000|0|0|high|research/vision|0,GPU-b,|-1|cbf29ce484222325|false|ada|ml|250000 of "
            "memory");
  EXPECT_EQ(options->pods[1].fingerprint,
            "0|125000|2147483648|low|||1000|2e373913e5ad677d|true|2|t4,|a100,h100,|||serve|");
}

TEST(Config, PricesMayHaveADateFromWhichTheyHold) {
  const auto options = ParseOptions(R"([ledger.prices]
"" = 2
"NVIDIA H200" = [{price = 3}, {from = "2026-11-01", price = 3.5},
                 {from = "2026-11-02T12:00", price = 4}]
)",
                                    "batond.toml");
  ASSERT_TRUE(options) << options.error().message;
  const std::chrono::sys_days day = std::chrono::year(2026) / 11 / 1;
  EXPECT_EQ(options->ledger.prices.at(""), ledger::ModelPrices(2));
  EXPECT_EQ(options->ledger.prices.at("NVIDIA H200").dated(),
            (std::vector<ledger::DatedPrice>{
                {ledger::WallTime{}, 3}, {day, 3.5}, {day + std::chrono::hours(36), 4}}));
  EXPECT_NE(PrintOptions(*options).find("\"NVIDIA H200\" = [{price = 3}, "
                                        "{from = \"2026-11-01T00:00:00\", price = 3.5}, "),
            std::string::npos);
  for (const char* wrong :
       {"[]", "[1]", "[{}]", "\"2\"", "[{from = \"2026-11-01\"}]", "[{price = -1}]",
        "[{price = 1}, {price = 2}]", "[{price = 1, too = 2}]", "[{from = 2026-11-01, price = 1}]",
        "[{from = \"soon\", price = 1}]", "[{from = \"2026-11-01T00:00:01\", price = 1}]",
        "[{from = \"2026-11-02\", price = 1}, {from = \"2026-11-01\", price = 1}]"}) {
    EXPECT_NE(ErrorOf(std::string("[ledger.prices]\nb = 1\na = ") + wrong + "\n")
                  .find("batond.toml:3: the price of a: "),
              std::string::npos)
        << wrong;
  }
}

TEST(Config, ErrorsNameFileAndLineAndWhatIsAccepted) {
  EXPECT_EQ(ErrorOf("[server]\nsocket_dirr = 1\n").substr(0, 44),
            "batond.toml:2: [server] has no key socket_di");
  EXPECT_NE(ErrorOf("[sever]\n").find("batond.toml:1: [sever] is no section"), std::string::npos);
  EXPECT_NE(ErrorOf("\n[scheduler]\nquota_min = \"1h\"\n").find("batond.toml:3: quota_min"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[scheduler]\nquota_min = 5\n").find("batond.toml:2: quota_min"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[http]\nlisten = \"0.0.0.0:7412\"\n").find("set a token file"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[ledger.prices]\na = -1\n").find("batond.toml:2: the price of a"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[ledger.weights]\na = -1\n").find("batond.toml:2: the weight of a"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[server]\nmode = \"enforced\"\n").find("batond.toml:2: mode"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[server\n").find("batond.toml:1: "), std::string::npos);
  EXPECT_NE(ErrorOf("[[pod]]\nname = \"a\"\nrequest = 101\n").find("batond.toml:3: request"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[[pod]]\nname = \"a\"\n").find("batond.toml:1: a pod needs a request"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[[pod]]\nname = \"a\"\nrequest = 50\nlimit = 30\n").find("below the request"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[zmq.nodes]\na = \"short\"\n").find("batond.toml:2: the key of node a"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[placement]\ncards = \"best\"\n").find("batond.toml:2: cards must be one of"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[placement]\nmemory_weight = 0.8\n").find("must add up to 1"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[placement]\nshare_weight = 1.1\n").find("batond.toml:2: share_weight"),
            std::string::npos);
  EXPECT_NE(ErrorOf("[[gpu]]\nuuid = \"../x\"\n").find("batond.toml:1: a [[gpu]] needs"),
            std::string::npos);
  const std::string gpu = "[[gpu]]\nuuid = \"MI-0\"\nname = \"MI300X\"\n";
  EXPECT_NE(ErrorOf(gpu + "vendor = \"AMD\"\n").find("a word of small letters"), std::string::npos);
  EXPECT_NE(ErrorOf(gpu + "vendor = \"amd\"\n").find("an environment by which programs find it"),
            std::string::npos);
  EXPECT_NE(ErrorOf(gpu + "environment = {X = \"0\"}\n").find("for GPUs of other vendors"),
            std::string::npos);
  EXPECT_NE(ErrorOf(gpu + "vendor = \"amd\"\nenvironment = \"X=0\"\n").find(":5: environment is a"),
            std::string::npos);
  EXPECT_NE(ErrorOf(gpu + "vendor = \"amd\"\nenvironment = {X = 0}\n").find(":5: X must be text"),
            std::string::npos);
  for (const char* bad : {"{\"A B\" = \"0\"}", "{\"\" = \"0\"}"}) {
    EXPECT_NE(
        ErrorOf(gpu + "vendor = \"amd\"\nenvironment = " + bad + "\n").find("names of variables"),
        std::string::npos)
        << bad;
  }
}

TEST(Config, WithoutKeysOnlyLoopbackMayBeListenedOn) {
  EXPECT_EQ(ErrorOf("[zmq]\nlisten = \"tcp://127.0.0.1:7411\"\n"), "");
  for (const char* address : {"tcp://0.0.0.0:7411", "tcp://*:7411", "tcp://10.0.0.1:7411"}) {
    EXPECT_NE(ErrorOf(std::string("[zmq]\nlisten = \"") + address + "\"\n").find("baton keygen"),
              std::string::npos)
        << address;
  }
}

// Names that begin like an address, and addresses behind another one.
TEST(Config, OnlyWholeLoopbackAddressesAreLoopback) {
  const auto error = [](const std::string& section, const std::string& address) {
    return ErrorOf(section + " = \"" + address + "\"\n");
  };
  for (const char* good : {"tcp://127.0.0.1:7411", "tcp://127.1.2.3:7411", "tcp://localhost:7411",
                           "tcp://[::1]:7411", "tcp://127.0.0.1:*", "ipc:///run/x"}) {
    EXPECT_EQ(error("zmq.listen", good), "") << good;
    EXPECT_EQ(error("upstream.connect", good), "") << good;
  }
  for (const char* bad :
       {"tcp://127.attacker.example:7411", "tcp://127.0.0.1.example:7411",
        "tcp://127.0.0.1:0;attacker.example:7411", "tcp://localhost:0;attacker.example:7411",
        "tcp://[::1]:0;attacker.example:7411", "tcp://localhost.example:7411", "tcp://127."}) {
    EXPECT_NE(error("zmq.listen", bad).find("not a loopback"), std::string::npos) << bad;
    EXPECT_NE(error("upstream.connect", bad).find("not a loopback"), std::string::npos) << bad;
  }
}

TEST(Config, ThePageLeadsToAddressesOfTheWebAlone) {
  EXPECT_EQ(ErrorOf("[page]\nnode = \"https://{node}:7412/\"\nall_nodes = \"http://all/\"\n"), "");
  for (const char* bad : {"javascript:alert(1)", "all.example", "https://two words/", "//all/"}) {
    const std::string text = std::string("\"") + bad + "\"\n";
    EXPECT_NE(ErrorOf("page.all_nodes = " + text).find("is no address"), std::string::npos) << bad;
    EXPECT_NE(ErrorOf("page.node = " + text).find("is no address"), std::string::npos) << bad;
  }
  EXPECT_NE(ErrorOf("page.node = \"https://gpu-1:7412/\"\n").find("write {node}"),
            std::string::npos);
}

TEST(Config, ControlCharactersArePrintedSoThatTheyAreReadBack) {
  Options options;
  options.server.socket_dir = "/run/\x7f\x1f\t";
  const auto back = ParseOptions(PrintOptions(options), "printed");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->server.socket_dir, options.server.socket_dir);
}

}  // namespace
}  // namespace baton::config
