// batond and its operator: pods made, placed, moved, deleted and configured.
#include "tests/backend/batond_fixture.h"

namespace baton::backend {
namespace {

TEST_F(Batond, ControlAnswersBadRequestsWithASentence) {
  Pod("a", 60);
  const auto code = [&](const json& request) {
    const json answer = Say(request);
    EXPECT_FALSE(answer.value("ok", true)) << answer.dump();
    EXPECT_FALSE(answer.value("error", "").empty());
    return answer.value("code", "");
  };
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 0}}), "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 101}}), "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", "abc"}}), "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"limit", 30}}),
            "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"reqest", 1}}),
            "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"gpus", {"GPU-a"}}}),
            "exhausted");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "a"}, {"request", 10}}), "exists");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 10}, {"gpus", {"GPU-x"}}}),
            "not_found");
  EXPECT_EQ(code({{"command", "set_pod"}, {"name", "x"}, {"request", 10}}), "not_found");
  const auto asking = [&](json more) {
    more.update({{"command", "create_pod"}, {"name", "b"}, {"request", 10}});
    return code(more);
  };
  EXPECT_EQ(asking({{"mode", "slices"}}), "invalid");
  EXPECT_EQ(asking({{"models", {"h999"}}}), "not_found");
  EXPECT_EQ(asking({{"models", "h100"}}), "invalid");
  EXPECT_EQ(asking({{"models", {""}}}), "invalid");
  EXPECT_EQ(asking({{"memory", "101%"}}), "invalid");
  EXPECT_EQ(asking({{"memory", "25%"}}), "invalid") << "nobody knows how much these have";
  EXPECT_EQ(asking({{"memory", uint64_t{2} << 40}}), "exhausted");
  EXPECT_EQ(asking({{"count", 0}}), "invalid");
  EXPECT_EQ(asking({{"count", 17}}), "invalid");
  EXPECT_EQ(asking({{"count", 3}}), "not_found");
  EXPECT_EQ(asking({{"count", 2}, {"gpus", {"GPU-a"}}}), "invalid");
  EXPECT_EQ(asking({{"affinity", std::string(129, 'x')}}), "invalid");
  EXPECT_EQ(asking({{"count", 2}, {"mode", "mps"}}), "invalid");
  EXPECT_EQ(code({{"command", "move_pod"}, {"name", "a"}, {"gpus", {"GPU-x"}}}), "not_found");
  EXPECT_EQ(code({{"command", "move_pod"}, {"name", "a"}}), "invalid");
  EXPECT_EQ(code({{"command", "cordon"}, {"gpus", {"GPU-x"}}}), "not_found");
  EXPECT_EQ(code({{"command", "cordon"}}), "invalid");
  EXPECT_EQ(code({{"command", "pod"}, {"name", "x"}}), "not_found");
  EXPECT_EQ(code({{"command", "defrag"}, {"request", 10}, {"moves", 17}}), "invalid");
  EXPECT_EQ(code({{"command", "explain_placement"}, {"request", 0}}), "invalid");
  EXPECT_EQ(code({{"command", "dance"}}), "invalid");
  EXPECT_EQ(code(json::array({1, 2})), "invalid");
  struct stat st;
  ASSERT_EQ(stat((folder_ / "run/control.sock").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST_F(Batond, PutsAPodWithoutAGpuWhereThereIsRoom) {
  Pod("a", 60);
  const json made = Say({{"command", "create_pod"}, {"name", "b"}, {"request", 50}});
  EXPECT_EQ(made.at("gpus"), json({"GPU-b"}));
  EXPECT_EQ(made.at("mode"), "time-slice");
  EXPECT_EQ(made.at("environment"), (json{{"CUDA_VISIBLE_DEVICES", "GPU-b"}}));
  const json both = Say({{"command", "create_pod"}, {"name", "c"}, {"request", 10}, {"count", 2}});
  EXPECT_EQ(both.at("gpus").size(), 2u);
}

TEST_F(Batond, ARefusalSaysWhyInOneLineAndWhereThereIsMore) {
  Pod("a", 60);
  const json refused =
      Say({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"gpus", {"GPU-a"}}});
  EXPECT_EQ(refused.value("error", ""),
            "no room for b (GPU-a: 40 % of it are free, 50 % wanted, with a 60 %); request less, "
            "remove a pod, or see 'baton explain placement'");
  const json nowhere =
      Say({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"count", 2}});
  EXPECT_EQ(
      nowhere.value("error", ""),
      "no room for b (GPU-a: 40 % of it are free, 50 % wanted, with a 60 %; GPU-b: has room, but "
      "one GPU is not enough); request less, remove a pod, or see 'baton explain placement'");
  const json many = Say({{"command", "create_pod"}, {"name", "b"}, {"request", 5}, {"count", 3}});
  EXPECT_EQ(many.value("code", ""), "not_found");
  const json explained = Say({{"command", "explain_placement"}, {"request", 50}, {"count", 2}});
  ASSERT_TRUE(explained.value("ok", false)) << explained.dump();
  EXPECT_FALSE(explained.at("fits"));
  EXPECT_EQ(explained.at("nodes").at(0).at("cards").at(0).at("why"),
            "40 % of it are free, 50 % wanted");
  EXPECT_TRUE(Say({{"command", "explain_placement"}, {"request", 40}, {"count", 2}}).at("fits"));
}

TEST_F(Batond, ALatencyIsKeptChangedAndTakenAway) {
  Pod("serve", 10, {{"latency", "20ms"}});
  const auto latency = [&] { return PodStatus("serve").value("latency_ns", int64_t{0}); };
  EXPECT_EQ(latency(), 20'000'000);
  EXPECT_EQ(PodStatus("serve").at("asked").at("latency"), "20ms");
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(latency(), 20'000'000);
  const auto set = [&](const json& latency) {
    return Say({{"command", "set_pod"}, {"name", "serve"}, {"latency", latency}});
  };
  EXPECT_TRUE(set("5ms").value("ok", false));
  EXPECT_EQ(latency(), 5'000'000);
  EXPECT_TRUE(set("none").value("ok", false));
  EXPECT_FALSE(PodStatus("serve").contains("latency_ns"));
  for (const json& bad : {json("11s"), json("999us"), json(5), json("soon")}) {
    EXPECT_EQ(set(bad).value("code", ""), "invalid") << bad;
  }
  const auto refused = [&](json more) {
    more.update({{"command", "create_pod"}, {"name", "b"}, {"latency", "20ms"}});
    const json answer = Say(more);
    EXPECT_EQ(answer.value("code", ""), "invalid") << answer;
    return answer.value("error", "");
  };
  const auto says = [](const std::string& text, const char* what) {
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  says(refused({{"priority", "idle"}}), "idle priority has no latency");
  says(refused({{"request", 10}, {"mode", "mps"}}), "needs mode time-slice");
  says(refused({{"request", 10}, {"gang", "g"}}), "in no gang");
  says(refused({{"request", 10}, {"count", 2}}), "in no gang");
  EXPECT_TRUE(Say({{"command", "create_pod"},
                   {"name", "b"},
                   {"request", 10},
                   {"count", 2},
                   {"independent", true},
                   {"latency", "20ms"}})
                  .value("ok", false));
}

// The shortest tokens take 250us each with their hand-off: of more than four that are to begin
// within 1ms of each other one is late.
TEST_F(Batond, ALatencyThatCannotBeMetFindsAnotherGpuOrIsRefused) {
  const auto create = [&](const std::string& name, json more) {
    more.update({{"command", "create_pod"}, {"name", name}, {"request", 5}});
    return Say(more);
  };
  for (const char* gpu : {"GPU-a", "GPU-b"}) {
    for (int i = 0; i < 5; ++i) {
      const json made =
          create(std::string(gpu) + std::to_string(i), {{"latency", "1ms"}, {"gpus", {gpu}}});
      ASSERT_TRUE(made.value("ok", false)) << made;
    }
    const json refused = create("more", {{"latency", "1ms"}, {"gpus", {gpu}}});
    EXPECT_EQ(refused.value("code", ""), "exhausted") << refused;
    EXPECT_NE(refused.value("error", "").find("the latency of more (1ms) cannot be met beside"),
              std::string::npos)
        << refused;
    EXPECT_NE(refused.value("error", "").find("ask for 2ms or more"), std::string::npos) << refused;
    if (gpu == std::string("GPU-a")) {
      // Without a wish for a GPU it goes to the other one.
      EXPECT_EQ(create("elsewhere", {{"latency", "1ms"}}).at("gpus"), json({"GPU-b"}));
      EXPECT_TRUE(Say({{"command", "delete_pod"}, {"name", "elsewhere"}}).value("ok", false));
    }
  }
  const json nowhere = create("more", {{"latency", "1ms"}});
  EXPECT_EQ(nowhere.value("code", ""), "exhausted") << nowhere;
  EXPECT_TRUE(create("more", {{"latency", "2ms"}}).value("ok", false));
  const json sooner = Say({{"command", "set_pod"}, {"name", "more"}, {"latency", "1ms"}});
  EXPECT_EQ(sooner.value("code", ""), "exhausted") << sooner;
  EXPECT_EQ(PodStatus("more").value("latency_ns", 0), 2'000'000) << "as it was";
  EXPECT_TRUE(create("without", json::object()).value("ok", false)) << "has none to miss";
}

TEST_F(Batond, WhoseKernelsAreTooLongForALatencyIsNamed) {
  ScriptedClient train(Socket()), serve(Socket());
  ASSERT_TRUE(train.Join(Pod("train", 50), "GPU-a"));
  ASSERT_TRUE(serve.Join(Pod("serve", 10, {{"latency", "20ms"}}), "GPU-a"));
  EXPECT_FALSE(PodStatus("serve").contains("latency_note"));
  ASSERT_TRUE(train.Ask() && train.AwaitGrant() && train.Report(Phase::kHolding));
  ASSERT_TRUE(serve.Ask());
  ASSERT_TRUE(train.AwaitGateClosed());
  poll(nullptr, 0, 100);  // a kernel that takes so long
  train.state.held_ns = 100'000'000;
  ASSERT_TRUE(GivesBack(train, "train"));
  ASSERT_TRUE(serve.AwaitGrant());
  const json pod = PodStatus("serve");
  EXPECT_EQ(pod.value("latency_waits", 0), 1) << pod;
  EXPECT_EQ(pod.value("latency_late", 0), 1) << pod;
  const std::string note = pod.value("latency_note", "");
  EXPECT_NE(note.find("the latency of serve (20ms) may be missed on GPU-a"), std::string::npos);
  EXPECT_NE(note.find("train needs up to"), std::string::npos) << note;
  EXPECT_FALSE(PodStatus("train").contains("latency_note"));
  EXPECT_TRUE(Eventually([&] {
    const json status = Status();
    const json& events = status.at("events");
    return std::any_of(events.begin(), events.end(), [](const json& event) {
      const std::string text = event.at("text");
      return text.starts_with("the latency of serve") && text.find("train needs") != text.npos;
    });
  })) << note;
}

TEST_F(Batond, TheMapOfVirtualGpusSurvivesACrash) {
  Pod("a", 60);
  Pod("b", 30, {{"gpus", {"GPU-a", "GPU-b"}}});
  const auto map = [&] {
    json rows = Say({{"command", "vgpus"}}).at("vgpus");
    for (json& row : rows) {
      row.erase("held_ns");
      row.erase("busy_ns");
    }
    return rows;
  };
  const json before = map();
  ASSERT_EQ(before.size(), 3u) << before.dump();
  EXPECT_EQ(before.at(1).at("pod"), "b");
  EXPECT_EQ(before.at(2).at("gpu"), "GPU-b");
  EXPECT_EQ(before.at(2).at("index"), 1);
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(map(), before);
  const auto refused = [&](double request, const char* gpu) {
    return Say({{"command", "create_pod"}, {"name", "c"}, {"request", request}, {"gpus", {gpu}}})
        .value("code", "");
  };
  EXPECT_EQ(refused(11, "GPU-a"), "exhausted");
  EXPECT_EQ(refused(71, "GPU-b"), "exhausted");
  Pod("d", 10);
  Pod("e", 70, {{"gpus", {"GPU-b"}}});
}

TEST_F(Batond, APodWhoseGpuIsGoneStaysAndGetsItsPlaceBack) {
  const std::string ticket = Pod("a", 60, {{"gpus", {"GPU-b"}}});
  EXPECT_EQ(daemon_.Stop(), 0);
  const std::string with = ReadText(folder_ / "batond.toml");
  std::string without = with;
  without.erase(without.find("[[gpu]]\nuuid = \"GPU-b\"\n"), 23);
  WriteText(folder_ / "batond.toml", without);
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_FALSE(PodStatus("a").empty());
  const json degraded = Status().at("daemon").at("degraded");
  ASSERT_EQ(degraded.size(), 1u);
  EXPECT_EQ(degraded.at(0), "pods without room: a (GPU-b is missing)");
  EXPECT_FALSE(Say({{"command", "vgpus"}}).at("vgpus").at(0).at("booked"));
  WriteText(folder_ / "batond.toml", with);
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return Status().at("daemon").at("degraded").empty(); }));
  EXPECT_EQ(Say({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"gpus", {"GPU-b"}}})
                .value("code", ""),
            "exhausted");
  ScriptedClient client(Socket());
  ASSERT_TRUE(client.Join(ticket, "GPU-b") && client.Ask());
  EXPECT_TRUE(client.AwaitGrant());
}

TEST_F(Batond, ACordonKeepsPodsAwayOverRestartsToo) {
  Pod("a", 10);
  ASSERT_TRUE(Say({{"command", "cordon"}, {"gpus", {"GPU-a"}}}).value("ok", false));
  const auto place = [&](const std::string& name) {
    return Say({{"command", "create_pod"}, {"name", name}, {"request", 10}}).at("gpus").at(0);
  };
  EXPECT_EQ(place("b"), "GPU-b");
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(place("c"), "GPU-b");
  EXPECT_TRUE(Status().at("gpus").at(0).at("cordoned"));
  EXPECT_EQ(Say({{"command", "create_pod"}, {"name", "d"}, {"request", 10}, {"gpus", {0}}})
                .value("error", ""),
            "no room for d (GPU-a: cordoned, with a 10 %); request less, remove a pod, or see "
            "'baton explain placement'");
  ASSERT_TRUE(Say({{"command", "uncordon"}, {"gpus", {"0"}}}).value("ok", false));
  EXPECT_TRUE(Say({{"command", "create_pod"}, {"name", "d"}, {"request", 10}, {"gpus", {0}}})
                  .value("ok", false));
  // What was there stayed.
  EXPECT_EQ(PodStatus("a").at("gpus").at(0).at("uuid"), "GPU-a");
}

TEST_F(Batond, APodMovesWhileItDoesNotRun) {
  const std::string ticket = Pod("a", 60);
  const auto move = [&](const std::string& gpu) {
    return Say({{"command", "move_pod"}, {"name", "a"}, {"gpus", {gpu}}});
  };
  {
    ScriptedClient client(Socket());
    ASSERT_TRUE(client.Join(ticket, "GPU-a"));
    EXPECT_EQ(move("GPU-b").value("code", ""), "unavailable");
  }
  // A client of this process lives on when its socket is closed; that of a holder ends with it.
  Pod("b", 60, {{"gpus", {"GPU-b"}}});
  const std::string other = Pod("c", 30);
  {
    HolderProcess holder(Socket(), other, "GPU-a");
    ASSERT_TRUE(holder.AwaitHolding());
  }
  ASSERT_TRUE(Eventually([&] { return PodStatus("c").at("clients").empty(); }));
  const uint64_t held = PodStatus("c").at("held_ns");
  EXPECT_GT(held, 0u);
  const json moved = Say({{"command", "move_pod"}, {"name", "c"}, {"gpus", {"GPU-b"}}});
  ASSERT_TRUE(moved.value("ok", false)) << moved.dump();
  const json rows = Say({{"command", "vgpus"}}).at("vgpus");
  EXPECT_EQ(rows.at(2).at("pod"), "c");
  EXPECT_EQ(rows.at(2).at("gpu"), "GPU-b");
  EXPECT_GE(rows.at(2).at("held_ns").get<uint64_t>(), held) << "what it used is not forgotten";
  {
    ScriptedClient client(Socket(), 7);
    ASSERT_TRUE(client.Join(other, "GPU-b") && client.Ask());
    EXPECT_TRUE(client.AwaitGrant());
  }
  // No room there.
  Pod("d", 40);
  EXPECT_EQ(Say({{"command", "move_pod"}, {"name", "d"}, {"gpus", {"GPU-b"}}}).value("code", ""),
            "exhausted");
  EXPECT_EQ(PodStatus("d").at("gpus").at(0).at("uuid"), "GPU-a");
}

TEST_F(Batond, OutOfMemoryIsToldWithWhatWasAskedTheCapAndWhoHasWhat) {
  constexpr uint64_t kMiB = 1 << 20;
  const std::string ticket = Pod("train", 10, {{"memory", 100 * kMiB}});
  ScriptedClient one(Socket(), 1), two(Socket(), 2);
  ASSERT_TRUE(one.Join(ticket, "GPU-a"));
  ASSERT_TRUE(two.Join(ticket, "GPU-a"));
  const auto take = [&](ScriptedClient& client, uint64_t request, uint64_t mib, uint64_t refused) {
    wire::Memory memory;
    memory.request = request;
    memory.total = mib * kMiB;
    memory.refused = refused * kMiB;
    client.Send(memory);
    return client.Await<wire::MemoryReply>()->granted;
  };
  EXPECT_TRUE(take(one, 1, 60, 0));
  EXPECT_TRUE(take(two, 1, 30, 0));
  EXPECT_FALSE(take(two, 2, 50, 0));
  const auto told = [&] { return Status().at("events").dump(); };
  // What is refused may be had at another attempt.
  EXPECT_EQ(told().find("out of memory"), std::string::npos);
  EXPECT_TRUE(take(two, 3, 30, 20)) << "it has what it had";
  const std::string events = told();
  EXPECT_NE(events.find("pod train is out of memory: process"), std::string::npos) << events;
  EXPECT_NE(events.find("asked for 20MiB on GPU-a: its cap there is 100MiB, and it has 90MiB: "),
            std::string::npos)
      << events;
  EXPECT_LT(events.find("(scripted) 60MiB"), events.find("(scripted) 30MiB")) << events;
  // One event for many, and the latest is explained.
  for (uint64_t i = 0; i < 50; ++i) EXPECT_TRUE(take(two, 4 + i, 30, 21));
  EXPECT_EQ(told(), events);
  poll(nullptr, 0, 120);
  EXPECT_TRUE(take(two, 60, 30, 22));
  const std::string explained = Say({{"command", "explain"}, {"pod", "train"}}).dump();
  EXPECT_NE(explained.find("train is out of memory: "), std::string::npos) << explained;
  EXPECT_NE(explained.find("asked for 22MiB"), std::string::npos) << explained;
}

TEST_F(Batond, APodWithoutACapIsToldWhoHasTheGpu) {
  constexpr uint64_t kMiB = 1 << 20;
  ASSERT_EQ(daemon_.Stop(), 0);
  Configure("memory = \"1GiB\"\n");  // of GPU-b
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  const std::string ticket = Pod("free", 10, {{"gpus", {"GPU-b"}}});
  Pod("capped", 10, {{"gpus", {"GPU-b"}}, {"memory", 900 * kMiB}});
  ScriptedClient client(Socket(), 1);
  ASSERT_TRUE(client.Join(ticket, "GPU-b"));
  wire::Memory memory;
  memory.request = 1;
  memory.refused = 200 * kMiB;
  client.Send(memory);
  ASSERT_TRUE(client.Await<wire::MemoryReply>());
  const std::string events = Status().at("events").dump();
  EXPECT_NE(
      events.find("asked for 200MiB on GPU-b: the GPU has no more room in its 1GiB, and it has "
                  "0B; others have: pod capped (reserved) 900MiB"),
      std::string::npos)
      << events;
}

TEST_F(Batond, DefragSaysWhichMovesMakeRoom) {
  Pod("a", 60);
  Pod("b", 30, {{"gpus", {"GPU-b"}}});
  // Who names its GPU stays there.
  EXPECT_EQ(Say({{"command", "defrag"}, {"request", 80}}).value("code", ""), "exhausted");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "b"}}).value("ok", false));
  ASSERT_TRUE(Say({{"command", "cordon"}, {"gpus", {"GPU-a"}}}).value("ok", false));
  ASSERT_TRUE(Say({{"command", "create_pod"}, {"name", "b"}, {"request", 30}}).value("ok", false));
  ASSERT_TRUE(Say({{"command", "uncordon"}, {"gpus", {"GPU-a"}}}).value("ok", false));
  const json plan = Say({{"command", "defrag"}, {"request", 80}});
  ASSERT_TRUE(plan.value("ok", false)) << plan.dump();
  ASSERT_EQ(plan.at("moves").size(), 1u);
  EXPECT_EQ(plan.at("moves").at(0).at("pod"), "b");
  EXPECT_EQ(plan.at("moves").at(0).at("to").at("gpus").at(0).at("uuid"), "GPU-a");
  EXPECT_EQ(plan.at("where").at("gpus").at(0).at("uuid"), "GPU-b");
}

TEST_F(Batond, ADeletedPodDrainsThenItsClientsAreSentAway) {
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-a"));
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  ASSERT_TRUE(Eventually([&] { return PhaseOf("a") == "holding"; }));
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).value("ok", false));
  ASSERT_TRUE(a.AwaitGateClosed());
  EXPECT_FALSE(b.HasGrantNow());
  const auto refusal = a.GiveBackUntil<wire::Error>();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->kind, ErrorKind::kUnknownPod);
  EXPECT_TRUE(a.AwaitClosed());
  EXPECT_TRUE(b.AwaitGrant());
}

TEST_F(Batond, AHolderOfADeletedPodIsHeardUntilItHasDrained) {
  const std::string ticket = Pod("a", 50);
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  ASSERT_TRUE(Eventually([&] { return PhaseOf("a") == "holding"; }));
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).value("ok", false));
  // A return of before the grant is none, and no reason to send it away.
  const uint64_t epoch = std::exchange(a.state.epoch, 0);
  ASSERT_TRUE(a.GiveBack());
  ASSERT_TRUE(a.AwaitGateClosed());
  a.state.epoch = epoch;
  a.Close();
  ASSERT_TRUE(a.Connect(Socket()));
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  EXPECT_FALSE(b.HasGrantNow());
  ASSERT_TRUE(Eventually([&] {
    a.HasGrantNow();
    a.GiveBack();
    return b.HasGrantNow();
  }));
  // Now it holds nothing, and its ticket is void.
  EXPECT_TRUE(a.AwaitClosed());
  ASSERT_TRUE(a.Connect(Socket()));
  ASSERT_TRUE(a.SayHello(ticket));
  EXPECT_EQ(a.Await<wire::Error>()->kind, ErrorKind::kUnknownPod);
}

TEST_F(Batond, AReloadAppliesTheFilesPodsAndASetOutlastsItUntilTheFileSpeaksAgain) {
  Configure("[[pod]]\nname = \"f\"\nrequest = 20\n[[pod]]\nname = \"g\"\nrequest = 5\n");
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return PodStatus("f").value("request", 0.0) == 20.0; }));
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "f"}, {"request", 30}}).value("ok", false));
  Configure("[[pod]]\nname = \"f\"\nrequest = 20\n");
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return PodStatus("g").empty(); }));
  EXPECT_EQ(PodStatus("f").at("request"), 30.0);
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(PodStatus("f").at("request"), 30.0);
  Configure("[[pod]]\nname = \"f\"\nrequest = 25\n");
  daemon_.Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return PodStatus("f").value("request", 0.0) == 25.0; }));
}

TEST_F(Batond, PodsOfTheFileSayOnWhichGpusTheyMayBe) {
  Configure(
      "[[pod]]\nname = \"f\"\nrequest = 20\ncount = 2\naffinity = \"x\"\n"
      "[[pod]]\nname = \"g\"\nrequest = 20\ngpus = [1]\nmode = \"exclusive\"\n");
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return PodStatus("f").value("gpus", json::array()).size() == 2; }));
  // It takes a whole GPU, and there is none.
  EXPECT_TRUE(Eventually(
      [&] { return daemon_.Log().find("[[pod]] g is not created: ") != std::string::npos; }));
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "f"}}).value("ok", false));
  Configure("[[pod]]\nname = \"g\"\nrequest = 20\ngpus = [1]\nmode = \"exclusive\"\n");
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return PodStatus("g").value("mode", "") == "exclusive"; }));
  EXPECT_EQ(Say({{"command", "create_pod"}, {"name", "h"}, {"request", 1}, {"gpus", {1}}})
                .value("code", ""),
            "exhausted");
}

TEST_F(Batond, ABrokenFileLeavesTheConfigurationAsItWasOnReload) {
  Configure("nonsense\n");
  daemon_.Signal(SIGHUP);
  EXPECT_TRUE(Eventually(
      [&] { return daemon_.Log().find("the configuration is unchanged") != std::string::npos; }));
  EXPECT_TRUE(Say({{"command", "ping"}}).value("ok", false));
}

TEST_F(Batond, ObservingItGatesNothingButKeepsTheBooks) {
  EXPECT_EQ(daemon_.Stop(), 0);
  WriteText(folder_ / "batond.toml",
            ReadText(folder_ / "batond.toml").replace(0, 9, "[server]\nmode = \"observe\"\n"));
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ScriptedClient client(Socket());
  ASSERT_TRUE(client.Join(Pod("a", 50), "GPU-a"));
  EXPECT_FALSE(client.attached->gated);
  client.state.launches = 5;
  client.state.held_ns = 1000;
  ASSERT_TRUE(client.Report(Phase::kIdle));
  EXPECT_TRUE(Eventually([&] { return PodStatus("a").at("launches") == 5; }));
  EXPECT_EQ(PodStatus("a").at("held_ns"), 1000);
  EXPECT_FALSE(client.HasGrantNow());
}

TEST_F(Batond, ATicketForMeasuringWorksOnceAndLeavesNoPodBehind) {
  const json bench = Say({{"command", "bench_ticket"}});
  ASSERT_TRUE(bench.value("ok", false)) << bench.dump();
  {
    HolderProcess holder(Socket(), bench.at("ticket"), bench.at("gpus").at(0));
    ASSERT_TRUE(holder.AwaitHolding());
    EXPECT_EQ(Status().at("pods").size(), 1u);
  }
  EXPECT_TRUE(Eventually([&] { return Status().at("pods").empty(); }));
}

// Or who deletes a pod after each long kernel and creates it again would pay for none of them.
TEST_F(Batond, APodThatIsCreatedAgainOwesWhatItsUsersDeletedPodHad) {
  Configure("");
  ScriptedClient a(Socket()), other(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 10, {{"user", "ann"}}), "GPU-a"));
  ASSERT_TRUE(other.Join(Pod("other", 50), "GPU-a"));
  ASSERT_TRUE(a.AskUntilGranted() && other.Ask());
  poll(nullptr, 0, 300);
  ASSERT_TRUE(GivesBack(a, "a"));
  EXPECT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).at("ok"));
  const auto lag = [&](const std::string& name, const json& more) {
    Pod(name, 10, more);
    return PodStatus(name).at("lag_ns").get<int64_t>();
  };
  EXPECT_EQ(lag("b", {{"user", "bob"}}), 0);
  EXPECT_EQ(lag("ann-elsewhere", {{"user", "ann"}, {"namespace", "lab"}}), 0);
  EXPECT_EQ(lag("nobody", json::object()), 0);
  EXPECT_LT(lag("a", {{"user", "ann"}}), -100'000'000);
  EXPECT_EQ(lag("a2", {{"user", "ann"}}), 0);
}

}  // namespace
}  // namespace baton::backend
