// `baton receipt` of a running batond: its figures are the report's, and it signs with its own key.
#include "base/file.h"
#include "receipt/envelope.h"
#include "tests/backend/kept_books.h"

namespace baton::backend {
namespace {

class ReceiptOfBatond : public KeptBooks {
 protected:
  json Receipt(json question) {
    question.update({{"command", "receipt"}, {"last", "1h"}});
    return Say(std::move(question));
  }
  static int64_t Ns(const json& hours) { return std::llround(hours.get<double>() * 3600e9); }
  // What is signed, as it is verified by whoever has the file.
  static json Signed(const json& answer, const std::string& format) {
    const auto opened = receipt::Verify(answer.at(format).get<std::string>());
    EXPECT_TRUE(opened) << opened.error().message;
    return opened ? json::parse(opened->payload) : json::object();
  }
};

TEST_F(ReceiptOfBatond, IsSignedAndSaysWhatTheReportSays) {
  Configure("", "every = \"100ms\"\ncurrency = \"EUR\"\nprices = {\"\" = 3.5}");
  Start();
  const std::string ticket =
      Pod("a", {{"request", 30}, {"memory", "512MiB"}, {"namespace", "lab"}, {"team", "research"}});
  Pod("lazy", {{"request", 5}, {"team", "research/vision"}});
  Use("a", ticket);
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "a"}, {"request", 60}}).at("ok"));
  Use("a", ticket);
  ASSERT_TRUE(IsBooked("pod", "lab/a", Held("a")));
  const json report =
      Say({{"command", "report"}, {"by", "total"}, {"last", "1h"}, {"pod", "lab/a"}}).at("rows")[0];

  const json answer = Receipt({{"pod", "a"}});
  ASSERT_TRUE(answer.value("ok", false)) << answer;
  const json& receipt = answer.at("receipt");
  const json& total = receipt.at("total");
  for (const char* field : {"held_hours", "busy_hours", "cost", "grants"}) {
    EXPECT_EQ(total.at(field), report.at(field)) << field;
  }
  EXPECT_GT(total.at("held_hours"), 0.0);
  int64_t less = 0;
  for (const auto& [reason, hours] : total.at("less").items()) less += Ns(hours);
  EXPECT_EQ(Ns(total.at("got_hours")) + less, Ns(total.at("guaranteed_hours")));
  EXPECT_EQ(Ns(total.at("got_hours")) + Ns(total.at("beyond_hours")), Ns(total.at("held_hours")));
  EXPECT_GT(total.at("pod_hours"), 0.0);
  const json& asked = receipt.at("asked");
  ASSERT_EQ(asked.size(), 2u) << asked;
  EXPECT_EQ(asked[0].at("pod"), "lab/a");
  EXPECT_EQ(asked[0].at("request"), 30);
  EXPECT_EQ(asked[0].at("memory"), std::to_string(512 << 20));
  EXPECT_EQ(asked[0].at("gpus"), json::array({"GPU-a"}));
  EXPECT_EQ(asked[1].at("request"), 60);
  EXPECT_EQ(asked[1].at("action"), "set");
  EXPECT_EQ(asked[0].at("to"), asked[1].at("from"));

  for (const char* format : {"json", "html"}) {
    json payload = Signed(answer, format);
    EXPECT_TRUE(payload.erase("page_sha256"));
    EXPECT_EQ(payload, receipt) << format;
  }
  const json key = Say({{"command", "receipt_key"}});
  EXPECT_EQ(receipt.at("key"), key.at("fingerprint"));
  EXPECT_EQ(receipt::PublicKey::FromPem(key.at("public_key"))->Fingerprint(),
            key.at("fingerprint"));
  struct stat status {};
  ASSERT_EQ(stat((folder_ / "state/receipt.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);

  // A team, with those below it; what used nothing was guaranteed its part all the same.
  const json team = Receipt({{"team", "/research/"}}).at("receipt");
  ASSERT_EQ(team.at("lines").size(), 2u) << team;
  EXPECT_EQ(team.at("lines")[0].at("key"), "lab/a");
  EXPECT_EQ(team.at("lines")[1].at("key"), "lazy");
  EXPECT_EQ(team.at("lines")[1].at("held_hours"), 0.0);
  EXPECT_GT(team.at("lines")[1].at("less").at("no_work_hours"), 0.0);

  // A pod that is gone, and a batond that was started anew.
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).at("ok"));
  Restart();
  const json later = Receipt({{"pod", "a"}, {"by", "gpu"}});
  ASSERT_TRUE(later.value("ok", false)) << later;
  EXPECT_EQ(later.at("receipt").at("key"), key.at("fingerprint"));
  EXPECT_EQ(later.at("receipt").at("total").at("held_hours"), total.at("held_hours"));
  ASSERT_EQ(later.at("receipt").at("asked").size(), 2u);
  EXPECT_TRUE(later.at("receipt").at("asked")[1].contains("to"));
  EXPECT_EQ(later.at("receipt").at("lines")[0].at("key"), "GPU-a");
}

TEST_F(ReceiptOfBatond, OfAPodOfTheFileFollowsWhatTheFileSays) {
  const auto configure = [&](int request) {
    Configure(
        "[[pod]]\nname = \"b\"\nticket = \"0123456789abcdef\"\ngpus = [\"GPU-a\"]\nrequest = " +
        std::to_string(request) + "\n");
  };
  configure(20);
  Start();
  ASSERT_TRUE(KnowsTheGpus());
  const auto asked = [&] {
    return Receipt({{"pod", "b"}}).value("receipt", json::object()).value("asked", json::array());
  };
  ASSERT_TRUE(Eventually([&] { return asked().size() == 1 && asked()[0].contains("from"); }))
      << asked();
  EXPECT_EQ(asked()[0].at("request"), 20);
  configure(50);
  Reload();
  ASSERT_TRUE(Eventually([&] { return asked().size() == 2; })) << asked();
  EXPECT_EQ(asked()[1].at("request"), 50);
  EXPECT_EQ(asked()[1].at("who"), "configuration");
  EXPECT_EQ(asked()[1].at("gpus"), json::array({"GPU-a"}));
  // Who deletes it and has the file read again has it anew. Who only restarts has the same one.
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "b"}}).at("ok"));
  Reload();
  const auto made = [&] {
    int count = 0;
    for (const json& row : Say({{"command", "log"}, {"pod", "b"}}).value("rows", json::array())) {
      count += row.at("action") == "create" && row.at("who") == "configuration" ? 1 : 0;
    }
    return count;
  };
  ASSERT_TRUE(Eventually([&] { return made() == 2; })) << Say({{"command", "log"}});
  Restart();
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "b"}}).at("ok"));
  Restart();
  ASSERT_TRUE(Eventually([&] { return made() == 3; })) << Say({{"command", "log"}});
  ASSERT_EQ(asked().size(), 4u) << asked();
  EXPECT_EQ(asked()[2].at("request"), 50);
  EXPECT_TRUE(asked()[2].contains("from"));
  EXPECT_TRUE(asked()[2].contains("to"));
  EXPECT_FALSE(asked()[3].contains("to"));
}

TEST_F(ReceiptOfBatond, SaysWhyThereIsNone) {
  Configure();
  Start();
  const auto code = [&](const json& question) { return Receipt(question).value("code", ""); };
  EXPECT_EQ(code(json::object()), "invalid");
  EXPECT_EQ(code({{"pod", "a"}, {"team", "b"}}), "invalid");
  EXPECT_EQ(code({{"pod", "a"}, {"by", "user"}}), "invalid");
  EXPECT_EQ(code({{"pod", "a"}, {"time_zone", "Europe/Berln"}}), "invalid");
  EXPECT_EQ(code({{"pod", "nobody"}}), "not_found");
  EXPECT_EQ(code({{"team", "nobody"}}), "not_found");
  // A key that is none stays, and is said.
  WriteText(folder_ / "state/receipt.key", "none");
  Pod("a");
  const json answer = Receipt({{"pod", "a"}});
  EXPECT_EQ(answer.value("code", ""), "invalid");
  EXPECT_NE(answer.value("error", "").find("receipt.key"), std::string::npos) << answer;
}

}  // namespace
}  // namespace baton::backend
