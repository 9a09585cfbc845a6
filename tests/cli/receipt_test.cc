// `baton receipt`: what it prints, and which receipts `baton receipt verify` refuses.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/file.h"
#include "receipt/envelope.h"
#include "tests/cli/harness.h"
#include "tests/receipt/sample.h"

namespace baton::cli {
namespace {

using nlohmann::json;

class ReceiptCommand : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  // The receipt as batond answers it.
  json Answer() {
    json receipt = receipt::SampleReceipt();
    receipt["key"] = key_.public_key().Fingerprint();
    const receipt::SignedSample sample = receipt::Sign(receipt, key_);
    return {{"receipt", receipt}, {"json", sample.json}, {"html", sample.html}};
  }
  // The sentence with which it is refused; empty where it is not.
  std::string Refused(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"receipt", "verify"});
    const Outcome outcome = RunBaton(arguments);
    EXPECT_EQ(outcome.status == 0, outcome.err.empty()) << outcome.err;
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 1) << outcome.status;
    EXPECT_TRUE(outcome.status == 0 || outcome.out.empty()) << outcome.out;
    return outcome.err;
  }

  const TempFolder folder_;
  const receipt::SigningKey key_ = *receipt::SigningKey::OpenOrMake(folder_ / "receipt.key");
};

// Anybody can sign anything.
TEST_F(ReceiptCommand, RefusesWhatIsSignedAndNoReceipt) {
  const std::vector<json> others = {
      json::object(), {{"kind", 1}}, {{"total", 7}, {"kind", "pod"}}, json::array()};
  for (const json& other : others) {
    const std::string file = Write("other.json", key_.Seal(other.dump()) + "\n");
    EXPECT_NE(Refused({file}).find("what is signed is not a receipt"), std::string::npos) << other;
  }
  // Nor does it read what an envelope cannot be.
  const std::string deep = Write("deep.json", "{\"a\":" + std::string(1 << 20, '[') + "}\n");
  EXPECT_NE(Refused({deep}).find("envelope is not JSON"), std::string::npos);
}

TEST_F(ReceiptCommand, PrintsTheReceiptForPeople) {
  FakeDaemon daemon([&](const json&) { return Answer(); });
  const Outcome outcome = RunBaton({"receipt", "pod", "vision/train", "--from", "2026-11-01",
                                    "--to", "2026-11-03", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(
      outcome.out,
      R"(Receipt of pod vision/train, from 2026-11-01T00:00:00Z to 2026-11-03T00:00:00Z, in GPU-hours, costs in EUR

Asked for
Pod           From                  To                    Request  Limit  Memory cap  Priority  GPUs          By
vision/train  before the log        2026-11-02 12:00:00Z  30 %     100 %  4GiB        normal    GPU-5d0033f9  -
vision/train  2026-11-02 12:00:00Z  -                     60 %     100 %  25%         high      GPU-5d0033f9  alice

Guaranteed and got
                                                           GPU-hours
Guaranteed: the request, for as long as the pod was there     18.000
  it had no work: it neither held nor waited                  -1.600
  outage: the GPU or batond was not there                     -1.033
Got of that                                                   15.367
  beyond the guarantee: time that others left over            +0.900
Held, which is charged                                        16.267

By day
            Guaranteed  Got of it    Held    Busy  Waited   GiB*h   Cost
2026-11-01       7.200      6.100   7.000   6.333   2.500   96.25  17.50
2026-11-02      10.800      9.267   9.267   8.667   3.750   96.50  23.17
Total           18.000     15.367  16.267  15.000   6.250  192.75  40.67
)");
  const json asked = daemon.requests().at(0);
  EXPECT_EQ(asked.at("command"), "receipt");
  EXPECT_EQ(asked.at("pod"), "vision/train");
  EXPECT_EQ(asked.at("from"), "2026-11-01");
  EXPECT_FALSE(asked.contains("team"));
}

// As the receipt shows them: seconds of a GPU are no 0.000 hours.
TEST_F(ReceiptCommand, VerifiesWithAsManyDecimalsAsTheReceiptHas) {
  json receipt = receipt::SampleReceipt();
  receipt["total"]["held_hours"] = 0.00042;
  receipt["total"]["guaranteed_hours"] = 0.0005;
  receipt["total"]["cost"] = 0.00147;
  const std::string file = Write("small.json", receipt::Sign(receipt, key_).json);
  const Outcome outcome = RunBaton({"receipt", "verify", file});
  EXPECT_NE(outcome.out.find("Held 0.00042 GPU-hours of 0.00050 guaranteed, cost 0.0015 EUR"),
            std::string::npos)
      << outcome.out;
}

// An earlier batond left the currency out where nothing was used.
TEST_F(ReceiptCommand, VerifiesReceiptsOfNoUse) {
  json receipt = receipt::SampleReceipt();
  receipt.erase("currency");
  receipt["lines"] = json::array();
  receipt["total"]["cost"] = receipt["total"]["held_hours"] = 0.0;
  const std::string file = Write("none.json", receipt::Sign(receipt, key_).json);
  EXPECT_EQ(Refused({file, "--key", key_.public_key().Fingerprint()}), "");
}

// What a script's variable has that is not set asks for no key, and any key would do.
TEST_F(ReceiptCommand, RefusesAnEmptyKey) {
  const std::string file = Write("good.json", Answer().at("json"));
  for (const std::vector<std::string>& key : {std::vector<std::string>{"--key", ""}, {"--key="}}) {
    std::vector<std::string> arguments = {"receipt", "verify", file};
    arguments.insert(arguments.end(), key.begin(), key.end());
    const Outcome outcome = RunBaton(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("--key"), std::string::npos) << outcome.err;
  }
}

// A link, a device and a file of the user's are not the receipt's to replace.
TEST_F(ReceiptCommand, WritesThroughWhatIsNoFile) {
  const FakeDaemon daemon([&](const json&) { return Answer(); });
  const auto write = [&](const std::string& path) {
    return RunBaton({"receipt", "pod", "train", "--format", "json", "--output", path,
                     "--socket-dir", daemon.socket_dir()});
  };
  const std::string mine = Write("r.json.new", "mine");
  const std::string file = Write("r.json", "old");
  ASSERT_EQ(write(file).status, 0);
  EXPECT_EQ(*ReadFile(mine, 100), "mine");
  EXPECT_EQ(Refused({file}), "");
  struct stat st {};
  ASSERT_EQ(stat(file.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0644U);

  const std::string link = folder_ / "link", target = Write("target", std::string(1 << 16, 'x'));
  std::filesystem::create_symlink("target", link);
  ASSERT_EQ(write(link).status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(Refused({target}), "");

  const std::string full = folder_ / "full";
  if (mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0) GTEST_SKIP() << "no devices here";
  const Outcome outcome = write(full);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("cannot write " + full + ": No space left"), std::string::npos)
      << outcome.err;
  EXPECT_TRUE(std::filesystem::is_character_file(full));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    files += entry.path().filename() != "receipt.key" ? 1 : 0;
  }
  EXPECT_EQ(files, 5U);  // nothing else was left behind
}

TEST_F(ReceiptCommand, WritesFilesThatItVerifies) {
  const FakeDaemon daemon([&](const json& request) -> json {
    if (request.at("command") == "receipt") return Answer();
    return {{"public_key", key_.public_key().Pem()},
            {"fingerprint", key_.public_key().Fingerprint()}};
  });
  const std::string key =
      Write("batond.pub", RunBaton({"receipt", "key", "--socket-dir", daemon.socket_dir()}).out);
  for (const std::string format : {"json", "html"}) {
    const std::string file = folder_ / ("receipt." + format);
    const std::vector<std::string> ask = {"receipt", "team",         "research",         "--format",
                                          format,    "--socket-dir", daemon.socket_dir()};
    std::vector<std::string> write = ask;
    write.insert(write.end(), {"--output", file});
    const Outcome written = RunBaton(write);
    ASSERT_EQ(written.status, 0) << written.err;
    EXPECT_EQ(written.out, "");
    EXPECT_EQ(RunBaton(ask).out, *ReadFile(file, receipt::kFileMax));
    EXPECT_EQ(Refused({file}), "");
    EXPECT_EQ(Refused({file, "--key", key}), "");
    EXPECT_EQ(Refused({file, "--key", key_.public_key().Fingerprint()}), "");
    const Outcome verified = RunBaton({"receipt", "verify", file});
    EXPECT_NE(verified.out.find("Receipt of pod vision/train, from 2026-11-01T00:00:00Z"),
              std::string::npos)
        << verified.out;
    EXPECT_NE(verified.out.find("Held 16.267 GPU-hours of 18.000 guaranteed, cost 40.67 EUR"),
              std::string::npos);
    EXPECT_NE(verified.out.find(key_.public_key().Fingerprint()), std::string::npos);
    EXPECT_NE(verified.out.find("--key says whether it is the one you trust"), std::string::npos);
    EXPECT_EQ(RunBaton({"receipt", "verify", file, "--key", key}).out.find("--key"),
              std::string::npos);
  }
}

TEST_F(ReceiptCommand, RefusesReceiptsThatWereChanged) {
  const json answer = Answer();
  const std::string text = answer.at("json"), page = answer.at("html");
  const std::string good = Write("good.json", text);
  const auto is = [&](const std::string& sentence, const std::string& why) {
    return sentence.find(why) != std::string::npos;
  };
  json envelope = json::parse(text);
  std::string payload = envelope.at("payload");
  payload[payload.size() / 2] = payload[payload.size() / 2] == 'A' ? 'B' : 'A';
  envelope["payload"] = payload;
  EXPECT_TRUE(
      is(Refused({Write("number.json", envelope.dump() + "\n")}), "the signature is wrong"));
  std::string shown = page;
  shown.replace(shown.find("40.67"), 5, "14.67");
  EXPECT_TRUE(is(Refused({Write("page.html", shown)}), "the page was changed"));
  EXPECT_TRUE(is(Refused({Write("half.json", text.substr(0, text.size() / 2))}), "cut short"));
  EXPECT_NE(Refused({Write("half.html", page.substr(0, page.size() / 2))}), "");
  EXPECT_NE(Refused({Write("most.html", page.substr(0, page.size() - 1))}), "");
  EXPECT_TRUE(is(Refused({Write("other.txt", "hello\n")}), "not a receipt"));
  EXPECT_TRUE(is(Refused({folder_ / "nothing"}), folder_ / "nothing"));

  const auto other = receipt::SigningKey::OpenOrMake(folder_ / "other.key")->public_key();
  const std::string other_file = Write("other.pub", other.Pem());
  EXPECT_TRUE(is(Refused({good, "--key", other_file}), "signed by another key"));
  EXPECT_TRUE(is(Refused({good, "--key", other.Fingerprint()}), "signed by another key"));
  EXPECT_TRUE(is(Refused({good, "--key", "sha256:"}), "signed by another key"));
  EXPECT_EQ(RunBaton({"receipt", "verify", good, "--key", Write("none.pub", "none")}).status, 2);
  // An ECDSA key, which no receipt is signed with.
  EXPECT_TRUE(
      is(RunBaton({"receipt", "verify", good, "--key",
                   Write("ec.pub",
                         "-----BEGIN PUBLIC KEY-----\n"
                         "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt\n"
                         "6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==\n"
                         "-----END PUBLIC KEY-----\n")})
             .err,
         "of another algorithm"));
}

TEST_F(ReceiptCommand, RefusesReceiptsWithAnyByteChanged) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const json answer = Answer();
  for (const char* format : {"json", "html"}) {
    const std::string text = answer.at(format);
    for (int i = 0; i < 20; ++i) {
      std::string changed = text;
      const size_t at = draw() % changed.size();
      changed[at] = static_cast<char>(changed[at] ^ (1 << draw() % 8));
      EXPECT_NE(Refused({Write("changed", changed)}), "") << format << ' ' << at;
    }
  }
}

TEST_F(ReceiptCommand, SaysWhatIsWrongWithTheCommandLine) {
  EXPECT_EQ(RunBaton({"receipt"}).status, 2);
  EXPECT_EQ(RunBaton({"receipt", "pod"}).status, 2);
  EXPECT_EQ(RunBaton({"receipt", "pod", "a", "--format", "csv"}).status, 2);
  EXPECT_EQ(RunBaton({"receipt", "pod", "a", "--output", folder_ / "a"}).status, 2);
  EXPECT_NE(RunBaton({"receipt", "verify", "--help"}).out.find("trust needs --key"),
            std::string::npos);
  const FakeDaemon daemon([](const json&) -> json {
    return {{"ok", false}, {"error", "nothing is known"}, {"code", "not_found"}};
  });
  const Outcome outcome = RunBaton({"receipt", "pod", "a", "--format", "json", "--output",
                                    folder_ / "none.json", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_FALSE(ReadFile(folder_ / "none.json", 10));
}

}  // namespace
}  // namespace baton::cli
