// batond's books of pods that have their GPUs as a whole and without the token.
#include "tests/backend/kept_books.h"

namespace baton::backend {
namespace {

// Another vendor's GPU, of which nobody measures anything: all of the time that it is given to a
// pod counts, whatever the pod does there.
TEST_F(KeptBooks, AnotherVendorsGpuIsBookedAsHeldForAsLongAsAPodHasIt) {
  Configure(
      "[[gpu]]\nuuid = \"MI-0\"\nname = \"AMD Instinct MI300X\"\nmemory = \"192GiB\"\nvendor = "
      "\"amd\"\nenvironment = {ROCR_VISIBLE_DEVICES = \"0\"}\n");
  Start();
  const json refused = Make("part", {{"gpus", {"MI-0"}}});
  EXPECT_NE(refused.value("error", "").find("ask for mode exclusive"), std::string::npos)
      << refused;
  const Instant before = MonotonicNow();
  const json made = Make(
      "rocm", {{"gpus", {"MI-0"}}, {"mode", "exclusive"}, {"request", 100}, {"team", "research"}});
  ASSERT_TRUE(made.value("ok", false)) << made;
  EXPECT_EQ(made.at("hook"), false) << "there is no token to wait for";
  EXPECT_EQ(made.at("environment"), (json{{"ROCR_VISIBLE_DEVICES", "0"}}));
  const auto gpu = [&]() -> json {
    const json status = Say({{"command", "status"}});
    for (const json& row : status.at("gpus")) {
      if (row.at("uuid") == "MI-0") return row;
    }
    return json::object();
  };
  EXPECT_EQ(gpu().value("vendor", ""), "amd");
  EXPECT_EQ(gpu().value("holder", ""), "rocm");
  EXPECT_EQ(PodStatus("rocm").at("phase"), "holding");
  EXPECT_TRUE(Eventually([&] { return PodStatus("rocm").at("achieved_1s").get<double>() > 99; }));
  const json again = Make("second", {{"gpus", {"MI-0"}}, {"mode", "exclusive"}, {"request", 100}});
  EXPECT_NE(again.value("error", "").find("a virtual GPU is on it already, with rocm"),
            std::string::npos)
      << again;
  // The hook of a program that has it all the same is told to stay out.
  ScriptedClient client(folder_ / "run/baton.sock", 4711);
  ASSERT_TRUE(client.SayHello(made.at("ticket").get<std::string>()));
  ASSERT_TRUE(client.Await<wire::Welcome>() && client.SendAttach(0, "MI-0"));
  const auto error = client.Await<wire::Error>();
  ASSERT_TRUE(error);
  EXPECT_NE(std::string(error->text.view()).find("without tokens"), std::string::npos);
  // A daemon that dies loses a second of it at most, and what follows counts again.
  ASSERT_TRUE(Eventually([&] { return Held("rocm") > 1'500'000'000; }));
  const int64_t held = Held("rocm");
  daemon_.Crash();
  Start();
  EXPECT_GT(Held("rocm"), held - 1'200'000'000);
  EXPECT_EQ(gpu().value("holder", ""), "rocm");
  ASSERT_TRUE(Eventually([&] { return Held("rocm") > held + 200'000'000; }));
  const json explained = Say({{"command", "explain"}, {"pod", "rocm"}});
  EXPECT_NE(explained.dump().find("as a whole and without the token"), std::string::npos)
      << explained;
  const int64_t last = Held("rocm");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "rocm"}}).value("ok", false));
  const int64_t until = Nanos(MonotonicNow() - before);
  EXPECT_EQ(gpu().value("holder", ""), "");
  EXPECT_TRUE(Eventually([&] { return Booked("pod", "rocm") >= last; })) << Report("pod");
  EXPECT_LE(Booked("team", "research"), until);
  EXPECT_EQ(Booked("gpu", "MI-0"), Booked("pod", "rocm"));
  EXPECT_TRUE(Make("next", {{"gpus", {"MI-0"}}, {"mode", "exclusive"}, {"request", 100}})
                  .value("ok", false));
}

// A pod of mode exclusive whose programs have no hook, as those that ask for nvidia.com/gpu.
TEST_F(KeptBooks, APodWithoutTheHookHoldsItsGpuForAsLongAsItIsThere) {
  Configure();
  Start();
  EXPECT_NE(Make("part", {{"without_hook", true}}).value("error", "").find("needs mode exclusive"),
            std::string::npos);
  const json made = Make("whole", {{"gpus", {"GPU-a"}},
                                   {"mode", "exclusive"},
                                   {"request", 100},
                                   {"without_hook", true},
                                   {"team", "research"}});
  ASSERT_TRUE(made.value("ok", false)) << made;
  EXPECT_EQ(made.at("hook"), false);
  EXPECT_EQ(PodStatus("whole").at("phase"), "holding");
  ASSERT_TRUE(Eventually([&] { return Held("whole") > 1'500'000'000; }));
  const int64_t held = Held("whole");
  daemon_.Crash();
  Start();
  EXPECT_GT(Held("whole"), held - 1'200'000'000);
  ASSERT_TRUE(Eventually([&] { return Held("whole") > held + 200'000'000; }));
  const json explained = Say({{"command", "explain"}, {"pod", "whole"}});
  EXPECT_NE(explained.dump().find("has its GPUs as a whole and without the token"),
            std::string::npos)
      << explained;
  const int64_t last = Held("whole");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "whole"}}).value("ok", false));
  EXPECT_TRUE(Eventually([&] { return Booked("team", "research") >= last; })) << Report("team");
  // The GPU is the token's again.
  Use("next", Pod("next"));
  EXPECT_GT(Held("next"), 0);
}

}  // namespace
}  // namespace baton::backend
