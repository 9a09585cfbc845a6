// batond's books: what pods used, what teams may, and a ledger that is unwell.
#include "tests/backend/kept_books.h"

namespace baton::backend {
namespace {

TEST_F(KeptBooks, WhatAPodUsedStandsUnderAllItsNames) {
  Configure();
  Start();
  const std::string ticket =
      Pod("a", {{"user", "user-a"}, {"namespace", "space"}, {"team", "research/vision"}});
  Use("a", ticket);
  const int64_t held = Held("a");
  ASSERT_GT(held, 0);
  EXPECT_TRUE(IsBooked("pod", "space/a", held)) << Report("pod");
  EXPECT_EQ(Booked("user", "user-a"), held);
  EXPECT_EQ(Booked("namespace", "space"), held);
  EXPECT_EQ(Booked("team", "research/vision"), held);
  EXPECT_EQ(Booked("gpu", "GPU-a"), held);
  EXPECT_EQ(Booked("total", ""), held);
}

TEST_F(KeptBooks, TheLastUseOfADeletedPodIsBookedThoughTheDaemonIsKilledBeforeIt) {
  const std::string books = folder_ / "books", away = folder_ / "away";
  mkdir(books.c_str(), 0700);
  Configure("", "every = \"100ms\"\ndatabase = \"sqlite:" + books + "/ledger.sqlite\"");
  Start();
  ASSERT_TRUE(KnowsTheGpus());
  ASSERT_EQ(rename(books.c_str(), away.c_str()), 0);  // nothing can be booked
  Use("a", Pod("a", {{"team", "research"}}));
  const int64_t held = Held("a");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).value("ok", false));
  ASSERT_TRUE(Eventually([&] { return IsDegraded(); }));
  daemon_.Crash();
  ASSERT_EQ(rename(away.c_str(), books.c_str()), 0);
  Start();
  EXPECT_TRUE(IsBooked("pod", "a", held)) << Report("pod");
  EXPECT_TRUE(IsBooked("team", "research", held));
  // And is forgotten then.
  EXPECT_TRUE(Eventually(
      [&] { return ReadText(folder_ / "state/pods.json").find("research") == std::string::npos; }));
}

TEST_F(KeptBooks, OtherSharesAreReckonedWithWhatAPodThatIsGoneLastAskedFor) {
  Configure();
  FillLedger("research", 20);  // by a pod named "former", of which nothing else is known
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  ASSERT_TRUE(
      Say({{"command", "set_pod"}, {"name", "a"}, {"request", 25}, {"limit", 50}}).at("ok"));
  ASSERT_TRUE(IsBooked("pod", "a", Held("a")));
  const auto row = [&](const std::string& pod, const std::string& shares = "") {
    const json answer = Say({{"command", "whatif"}, {"last", "7d"}, {"shares", shares}});
    for (const json& one : answer.at("rows")) {
      if (one.at("pod") == pod) return one;
    }
    return json();
  };
  EXPECT_EQ(row("a").at("request"), 25);
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).at("ok"));
  ASSERT_TRUE(Eventually([&] { return row("a").value("known", false); }));
  EXPECT_EQ(row("a").at("request"), 25);
  EXPECT_EQ(row("a").at("limit"), 50);
  EXPECT_EQ(row("a", "a=30:40,former=10").at("request"), 30);
  EXPECT_EQ(row("a", "a=30:40").at("limit"), 40);
  EXPECT_FALSE(row("former").at("known"));
  EXPECT_GT(row("former").at("would_get"), 0);
  EXPECT_TRUE(row("former", "former=10").at("known"));
}

// Two observed pods: what hooks say they executed is all that is known of how busy the GPU was.
TEST_F(KeptBooks, AnObservedGpuWasIdleWhereNoPodExecuted) {
  Configure();
  WriteText(folder_ / "batond.toml",
            ReadText(folder_ / "batond.toml").replace(0, 9, "[server]\nmode = \"observe\"\n"));
  Start();
  ScriptedClient half(folder_ / "run/baton.sock", 1), whole(folder_ / "run/baton.sock", 2);
  ASSERT_TRUE(half.Join(Pod("half"), "GPU-a"));
  ASSERT_TRUE(whole.Join(Pod("whole", {{"gpus", {"GPU-b"}}}), "GPU-b"));
  const auto idle = [&](const std::string& gpu) {
    const json report = Report("gpu");
    for (const json& row : report.value("rows", json::array())) {
      if (row.at("key") == gpu) return row.at("idle_hours").get<double>() * 3600;
    }
    return 0.0;
  };
  const auto now = [] {
    return std::chrono::duration<double>(MonotonicNow().time_since_epoch()).count();
  };
  ASSERT_TRUE(KnowsTheGpus());
  const double began = now(), before_a = idle("GPU-a"), before_b = idle("GPU-b");
  double said = began;
  const auto work = [&] {
    usleep(20'000);
    const double passed = now() - std::exchange(said, now());
    half.state.busy_ns += static_cast<uint64_t>(1e9 * passed / 2);
    whole.state.busy_ns += static_cast<uint64_t>(1e9 * passed);
    return half.Report(wire::Phase::kIdle) && whole.Report(wire::Phase::kIdle);
  };
  while (said < began + 3) ASSERT_TRUE(work());
  EXPECT_TRUE(Eventually([&] { return work() && idle("GPU-a") - before_a > 0.4 * (said - began); }))
      << idle("GPU-a");
  EXPECT_LT(idle("GPU-a") - before_a, 0.5 * (now() - began) + 0.5);
  EXPECT_LT(idle("GPU-b") - before_b, 0.5) << "what it said too late counts all the same";
  EXPECT_EQ(PodStatus("half").at("held_ns"), 0) << "nobody was given the GPU";
}

// Who comes next is slow to say that it has begun.
TEST_F(KeptBooks, APodIsToldOfTheTimeThatHandoffsTakeOfItsGpu) {
  Configure();
  Start();
  const auto explained = [&] {
    return Say({{"command", "explain"}, {"pod", "a"}}).at("sentences").dump();
  };
  ScriptedClient a(folder_ / "run/baton.sock", 1), b(folder_ / "run/baton.sock", 2);
  ASSERT_TRUE(a.Join(Pod("a"), "GPU-a") && b.Join(Pod("b"), "GPU-a"));
  EXPECT_EQ(explained().find("moved from pod to pod"), std::string::npos) << explained();
  ASSERT_TRUE(a.AskUntilGranted() && a.Report(wire::Phase::kHolding));
  for (int turn = 0; turn < 200; ++turn) {
    ScriptedClient &holder = turn % 2 == 0 ? a : b, &next = turn % 2 == 0 ? b : a;
    ASSERT_TRUE(next.Ask());
    ASSERT_TRUE(Eventually([&] {
      holder.HasGrantNow();  // its newest revision is what is given back
      return holder.GiveBack() && next.HasGrantNow();
    }));
    usleep(2'000);
    ASSERT_TRUE(next.Report(wire::Phase::kHolding));
  }
  EXPECT_TRUE(Eventually([&] {
    const std::string text = explained();
    return text.find("GPU-a stood still for ") != std::string::npos &&
           text.find("That is more than handoff_fraction (1.0 %)") != std::string::npos;
  })) << explained();
}

TEST_F(KeptBooks, WhatAPodUsesAfterItsMoveIsTheOtherTeams) {
  Configure();
  Start();
  const std::string ticket = Pod("a", {{"team", "one"}});
  Use("a", ticket);
  const int64_t before = Held("a");
  ASSERT_TRUE(IsBooked("team", "one", before));
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "a"}, {"team", "two"}}).value("ok", false));
  Use("a", ticket);
  EXPECT_TRUE(IsBooked("team", "two", Held("a") - before)) << Report("team");
  EXPECT_EQ(Booked("team", "one"), before);
}

// Of a pod's claims only its own books may suffer.
TEST_F(KeptBooks, ClaimsBeyondAllMeasureDoNotStopTheBooksOfOthers) {
  Configure();
  Start();
  const std::string liar = Pod("liar"), other = Pod("b");
  ScriptedClient client(folder_ / "run/baton.sock", 4711);
  ASSERT_TRUE(client.Join(liar, "GPU-a"));
  client.state.busy_ns = UINT64_MAX;
  client.state.waited_ns = uint64_t{1} << 62;
  client.state.unmanaged_ns = UINT64_MAX / 2;
  client.state.launches = UINT64_MAX - 1;
  client.state.memory_bytes = UINT64_MAX;
  ASSERT_TRUE(client.GiveBack());
  wire::Memory memory;
  memory.request = 1;
  memory.total = UINT64_MAX / 8;
  ASSERT_TRUE(client.Send(memory) && client.Await<wire::MemoryReply>());
  Use("b", other);
  EXPECT_TRUE(IsBooked("pod", "b", Held("b"))) << Say({{"command", "status"}}).at("daemon");
  EXPECT_FALSE(IsDegraded());
  const json total = Report("total");
  ASSERT_TRUE(total.value("ok", false)) << total;
  ASSERT_EQ(total.at("rows").size(), 1u) << total;
  // And what is booked of them could be true: they were there for seconds.
  const json pod = PodStatus("liar");
  for (const char* counter : {"busy_ns", "waited_ns", "unmanaged_ns"}) {
    EXPECT_LT(pod.at(counter).get<uint64_t>(), uint64_t{60'000'000'000}) << counter;
  }
  EXPECT_LT(pod.at("launches").get<uint64_t>(), uint64_t{600'000'000});
  // No more than the GPU has, for no longer than the pod was there.
  EXPECT_LT(total.at("rows")[0].at("memory_gib_hours").get<double>(), 0.1);
}

// The ids of pods begin anew where pods.json is lost, and the ledger remembers those of before.
TEST_F(KeptBooks, APodIsNotBookedAgainstAnotherOfBeforeThePodsFileWasLost) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  Use("a", ticket);
  const int64_t held = Held("a");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).value("ok", false));
  ASSERT_TRUE(IsBooked("pod", "a", held));
  ASSERT_EQ(daemon_.Stop(), 0);
  unlink((folder_ / "state/pods.json").c_str());
  Configure(
      "[[pod]]\nname = \"b\"\nrequest = 10\nticket = \"0123456789abcdef\"\n"
      "gpus = [\"GPU-a\"]\n");
  Start();
  Use("b", "0123456789abcdef");
  EXPECT_TRUE(IsBooked("pod", "b", Held("b"))) << Report("pod");
  EXPECT_EQ(Booked("pod", "a"), held);
}

TEST_F(KeptBooks, ATimeWithoutBooksIsBookedAfterIt) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  Use("a", ticket);
  const std::string gone = Pod("gone");
  Use("gone", gone);
  const int64_t of_gone = Held("gone");
  ASSERT_TRUE(IsBooked("pod", "gone", of_gone));
  Configure("", "database = \"none\"");
  Restart();
  const json refused = Report("team");
  EXPECT_EQ(refused.value("code", ""), "unavailable");
  EXPECT_EQ(refused.value("error", ""), "there is no ledger: ledger.database is \"none\"");
  Use("a", ticket);
  const int64_t held = Held("a");
  Configure();
  Restart();
  EXPECT_TRUE(IsBooked("pod", "a", held)) << Report("pod");
  EXPECT_EQ(Booked("pod", "gone"), of_gone);
}

TEST_F(KeptBooks, TeamsShareWhatIsLeftOverByWeightAndHistoryAndAReloadApplies) {
  FillLedger("early", 20);
  Configure(Teams("[[team]]\nname = \"early\"\n[[team]]\nname = \"late\"\n"));
  Start();
  ScriptedClient early(folder_ / "run/baton.sock", 1), late(folder_ / "run/baton.sock", 2);
  ASSERT_TRUE(early.Join(Pod("e", {{"team", "early"}}), "GPU-a") && early.Ask());
  ASSERT_TRUE(early.AwaitGrant());
  ASSERT_TRUE(late.Join(Pod("l", {{"team", "late"}}), "GPU-a") && late.Ask());
  const auto fluid = [&](double of_early, double of_late) {
    return Eventually([&] {
      return std::abs(Fluid("e") - of_early) < 0.1 && std::abs(Fluid("l") - of_late) < 0.1;
    });
  };
  // e = w' + (w' - u'): half minus half for the one, half plus half for the other.
  EXPECT_TRUE(fluid(10, 90)) << Fluid("e") << ' ' << Fluid("l");
  // .9 + (.9 - 1) and .1 + .1, of the 80 % that nobody requested.
  Teams("[[team]]\nname = \"early\"\nweight = 9\n[[team]]\nname = \"late\"\n");
  Reload();
  EXPECT_TRUE(fluid(10 + 64, 10 + 16)) << Fluid("e") << ' ' << Fluid("l");
  // A broken file changes nothing, and is said.
  Teams("[[team]]\nname = \"early\"\nweight = -1\n");
  Reload();
  EXPECT_TRUE(Eventually([&] { return Said({"teams.toml:3", "the teams are unchanged"}); }));
  EXPECT_TRUE(fluid(10 + 64, 10 + 16));
}

TEST_F(KeptBooks, WhatWasChangedIsWrittenDownWithWhoAndFromWhatToWhat) {
  const auto configure = [&](const char* price) {
    Configure(Teams("[[team]]\nname = \"early\"\n"),
              std::string("every = \"100ms\"\nprices = {\"\" = ") + price + "}");
  };
  configure("2.5");
  Start();
  const std::string ticket = Pod("a", {{"namespace", "space"}, {"memory", uint64_t{1} << 30}});
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "a"}, {"request", 20}}).at("ok"));
  EXPECT_FALSE(Say({{"command", "set_pod"}, {"name", "a"}, {"request", 200}}).at("ok"));
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "a"}, {"request", 20}}).at("ok"));
  ASSERT_TRUE(Say({{"command", "cordon"}, {"gpus", {"GPU-b"}}}).at("ok"));
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).at("ok"));
  Teams("[[team]]\nname = \"early\"\nweight = 9\n");
  Reload();
  const auto log = [&](json question = json::object()) {
    question["command"] = "log";
    return Say(question);
  };
  ASSERT_TRUE(Eventually([&] { return log().value("rows", json::array()).size() == 5; })) << log();
  const json rows = log().at("rows");
  const auto is = [&](size_t i, const char* action, const char* kind, const char* object) {
    EXPECT_EQ(rows.at(i).at("action"), action) << rows;
    EXPECT_EQ(rows.at(i).at("kind"), kind) << rows;
    EXPECT_EQ(rows.at(i).at("object"), object) << rows;
  };
  is(0, "configure", "team", "early");
  EXPECT_EQ(rows.at(0).at("who"), "configuration");
  EXPECT_EQ(rows.at(0).at("was").at("weight"), 1);
  EXPECT_EQ(rows.at(0).at("is").at("weight"), 9);
  is(1, "delete", "pod", "space/a");
  EXPECT_EQ(rows.at(1).at("was").at("request"), 20);
  EXPECT_TRUE(rows.at(1).at("is").is_null());
  is(2, "cordon", "gpu", "GPU-b");
  is(3, "set", "pod", "space/a");
  EXPECT_EQ(rows.at(3).at("was").at("request"), 10);
  EXPECT_EQ(rows.at(3).at("is").at("request"), 20);
  EXPECT_EQ(rows.at(3).at("change"), "request 10.0 -> 20.0");
  EXPECT_NE(rows.at(1).at("change").get<std::string>().find("request was 20"), std::string::npos);
  is(4, "create", "pod", "space/a");
  EXPECT_TRUE(rows.at(4).at("was").is_null());
  // For people: units, the words that are in use, no JSON.
  const auto made = rows.at(4).at("change").get<std::string>();
  for (const char* part : {"memory 1GiB", "priority normal", "gpus GPU-a,"}) {
    EXPECT_NE(made.find(part), std::string::npos) << part << " in " << made;
  }
  EXPECT_EQ(rows.at(4).at("is").at("memory"), 1 << 30);
  EXPECT_EQ(rows.dump().find(ticket), std::string::npos) << "a ticket is a secret";
  EXPECT_EQ(log({{"pod", "space/a"}}).at("rows").size(), 3u);
  EXPECT_EQ(log({{"pod", "a"}}).at("rows").size(), 3u) << "in any namespace";
  EXPECT_EQ(log({{"team", "/early/"}}).at("rows").size(), 1u);
  EXPECT_EQ(rows.at(0).at("change"), "weight 1 -> 9");
  EXPECT_EQ(log({{"gpu", "GPU-b"}}).at("rows").size(), 1u);
  EXPECT_EQ(log({{"pod", "space/a"}, {"gpu", "GPU-b"}}).value("code", ""), "invalid");
  // What a team has not is left out, and what it gets and loses is said as such.
  const auto change = [&](const std::string& team, size_t rows) {
    Teams("[[team]]\nname = \"early\"\nweight = 9\n" + team);
    Reload();
    EXPECT_TRUE(Eventually([&] { return log({{"team", "early"}}).at("rows").size() == rows; }));
    return log({{"team", "early"}}).at("rows").at(0).at("change");
  };
  EXPECT_EQ(change("[[team]]\nname = \"early/bird\"\n", 2), "weight 1");
  EXPECT_EQ(change("limit = 2.5\n[[team]]\nname = \"early/bird\"\n", 3), "limit 2.5");
  EXPECT_EQ(change("[[team]]\nname = \"early/bird\"\n", 4), "limit was 2.5");
  // Prices are of the next daemon, and so is all that gives the past another cost.
  EXPECT_EQ(daemon_.Stop(), 0);
  configure("3.5}\ncurrency = \"USD\"\nenergy_price = 0.3\nweights = {\"\" = 1");
  Start();
  ASSERT_TRUE(Eventually([&] { return log().value("rows", json::array()).size() >= 11; })) << log();
  const json newest = log().at("rows");
  EXPECT_TRUE(std::any_of(newest.begin(), newest.end(), [](const json& row) {
    return row.at("kind") == "config" && row.at("object") == "ledger" &&
           row.at("change") == "currency EUR -> USD, energy_price 0.0 -> 0.3";
  })) << newest;
  EXPECT_TRUE(std::any_of(newest.begin(), newest.end(), [](const json& row) {
    return row.at("kind") == "price" && row.at("was").value("price", 0.0) == 2.5 &&
           row.at("is").value("price", 0.0) == 3.5;
  })) << newest;
  EXPECT_EQ(daemon_.Stop(), 0);
  configure("[{price = 3.5}, {from = \"2099-01-01\", price = 4}]");
  Start();
  EXPECT_TRUE(Eventually([&] {
    return log().dump().find("\"price 3.5 -> 3.5, 4.0 from 2099-01-01T00:00:00Z\"") !=
           std::string::npos;
  })) << log();
}

TEST_F(KeptBooks, ATeamOverItsBudgetLosesPriorityOrTakesNoNewPods) {
  FillLedger("spent", 20);
  Configure(
      Teams("[[team]]\nname = \"spent\"\nbudget = 5\n[[team]]\nname = \"spent/closed\"\n"
            "[[team]]\nname = \"rich\"\nbudget = 500\n"));
  Start();
  EXPECT_TRUE(Eventually([&] { return Said({"team spent is over its budget of 5 GPU-hours"}); }));
  EXPECT_FALSE(Said({"is not known"})) << "that nobody has looked yet is no news";
  Pod("low", {{"team", "rich"}});
  const auto explained = [&](const std::string& pod) {
    return Say({{"command", "explain"}, {"pod", pod}}).at("sentences").dump();
  };
  Pod("high", {{"team", "spent/closed"}, {"priority", "high"}});
  EXPECT_NE(explained("high").find("its pods lose high priority"), std::string::npos)
      << explained("high");
  EXPECT_EQ(explained("low").find("low priority"), std::string::npos) << explained("low");
  // The same, where no new pods are taken.
  Teams("[[team]]\nname = \"spent\"\nbudget = 5\nover_budget = \"refuse\"\n");
  Reload();
  ASSERT_TRUE(Eventually([&] { return Said({"configuration reloaded"}); }));
  const json refused = Make("new", {{"team", "spent/closed"}});
  EXPECT_EQ(refused.value("code", ""), "exhausted") << refused;
  EXPECT_NE(refused.value("error", "").find("new pods of it are refused"), std::string::npos);
  // One that moves there is new there; one that is there may stay and change.
  const json moved = Say({{"command", "set_pod"}, {"name", "low"}, {"team", "spent"}});
  EXPECT_EQ(moved.value("code", ""), "exhausted") << moved;
  EXPECT_EQ(PodStatus("low").at("team"), "rich");
  EXPECT_TRUE(Say({{"command", "set_pod"}, {"name", "high"}, {"request", 12}}).value("ok", false));
}

TEST_F(KeptBooks, AReportMayBeOfOneTeamBySeveralKeysInATimeZone) {
  FillLedger("lab/vision", 20);
  Configure();
  Start();
  const auto report = [&](json question) {
    question.update({{"command", "report"}, {"last", "3d"}});
    return Say(question);
  };
  const json lab = report({{"by", "day,user"}, {"team", "lab/"}, {"time_zone", "Asia/Tokyo"}});
  ASSERT_TRUE(lab.value("ok", false)) << lab;
  EXPECT_EQ(lab.at("time_zone"), "Asia/Tokyo");
  EXPECT_TRUE(lab.at("from").get<std::string>().ends_with("+09:00")) << lab;
  ASSERT_GE(lab.at("rows").size(), 2u) << "thirty hours are of two days at least";
  double held = 0;
  for (const json& row : lab.at("rows")) {
    ASSERT_EQ(row.at("keys").size(), 2u) << row;
    EXPECT_EQ(row.at("keys")[1], "someone");
    EXPECT_EQ(row.at("team"), "lab/vision");
    held += row.at("held_hours").get<double>();
  }
  EXPECT_NEAR(held, 20, 1e-9);
  EXPECT_NEAR(lab.at("others_hours").get<double>(), 0, 1e-9);
  for (const json& question : std::initializer_list<json>{
           {{"team", "la"}}, {{"user", "nobody"}}, {{"namespace", "x"}}, {{"pod", "x/former"}}}) {
    const json none = report(question);
    EXPECT_TRUE(none.at("rows").empty()) << none;
    EXPECT_NEAR(none.at("others_hours").get<double>(), 20, 1e-9) << none;
  }
  EXPECT_EQ(report({{"pod", "former"}}).at("rows").size(), 1u);
  EXPECT_EQ(report({{"by", "month"}, {"user", "someone"}}).at("others_hours"), 0.0);
}

TEST_F(KeptBooks, UseHasThePriceOfItsTime) {
  FillLedger("lab", 20);
  const ledger::WallTime now = ledger::WallNow();
  const auto change = std::chrono::floor<std::chrono::hours>(now) - std::chrono::hours(9);
  const std::chrono::local_seconds written(change.time_since_epoch());
  Configure("[ledger.prices]\nmodel = [{price = 1}, {from = \"" +
            ledger::FormatWrittenTime(written) + "\", price = 3}]\n");
  Start();
  const json report = Say({{"command", "report"}, {"by", "team,price"}, {"last", "3d"}});
  ASSERT_TRUE(report.value("ok", false)) << report;
  ASSERT_EQ(report.at("rows").size(), 2u) << report;
  const json &before = report.at("rows")[0], &after = report.at("rows")[1];
  EXPECT_EQ(before.at("price"), 1);
  EXPECT_EQ(after.at("from"), ledger::FormatWrittenTime(written) + "Z");
  // Twenty hours in thirty, evenly, up to a minute ago.
  const std::chrono::duration<double, std::ratio<3600>> hours_since = now - change;
  EXPECT_NEAR(after.at("held_hours").get<double>(), 20. / 30 * hours_since.count(), 0.1);
  EXPECT_NEAR(before.at("held_hours").get<double>() + after.at("held_hours").get<double>(), 20,
              1e-6);
  EXPECT_NEAR(report.at("cost").get<double>(),
              before.at("held_hours").get<double>() + 3 * after.at("held_hours").get<double>(),
              1e-6);
  EXPECT_DOUBLE_EQ(
      Say({{"command", "report"}, {"by", "team"}, {"last", "3d"}}).at("cost").get<double>(),
      report.at("cost").get<double>());
}

TEST_F(KeptBooks, HoursCountAsTheirModelWeighsInStandingAndBudgets) {
  FillLedger("light", 20);
  Configure("[ledger.weights]\nmodel = 0.25\n" +
            Teams("[[team]]\nname = \"light\"\nbudget = 10\n"));
  Start();
  const auto light = [&](const json& answer, const char* key) {
    for (const json& row : answer.value("rows", json::array())) {
      if (row.at(key) == "light" && row.value("user", "").empty()) return row;
    }
    return json::object();
  };
  const auto budget_held = [&] {
    const json report = Say({{"command", "report"}, {"by", "team"}, {"last", "3d"}});
    return light(report, "key").value("budget_held_hours", -1.0);
  };
  EXPECT_TRUE(Eventually([&] { return std::abs(budget_held() - 5) < 1e-6; })) << budget_held();
  const json report = Say({{"command", "report"}, {"by", "team"}, {"last", "3d"}});
  EXPECT_FALSE(light(report, "key").value("over_budget", true));
  EXPECT_NEAR(light(report, "key").at("held_hours").get<double>(), 20, 1e-6) << "as it was held";
  // A day and more ago at most, with a half-life of a week.
  const double used = light(Say({{"command", "standing"}}), "team").value("raw_usage_hours", -1.0);
  EXPECT_GT(used, 4);
  EXPECT_LT(used, 5);
}

TEST_F(KeptBooks, AReportByTeamHasTheBudgets) {
  FillLedger("lab/vision", 20);
  Configure(Teams("[[team]]\nname = \"lab\"\nbudget = 5\n[[team]]\nname = \"ops\"\nbudget = 7\n"));
  Start();
  ASSERT_TRUE(Eventually([&] { return Said({"team lab is over its budget of 5 GPU-hours"}); }));
  const json report = Say({{"command", "report"}, {"last", "3d"}});
  ASSERT_EQ(report.at("rows").size(), 3u) << report;
  const json& lab = report.at("rows")[0];
  EXPECT_EQ(lab.at("key"), "lab");
  EXPECT_EQ(lab.at("held_hours"), 0.0) << "what is below it has rows of its own";
  EXPECT_EQ(lab.at("budget_hours"), 5.0);
  EXPECT_EQ(lab.at("budget_period_s"), 30 * 86400.0);
  EXPECT_NEAR(lab.at("budget_held_hours").get<double>(), 20, 1e-9);
  EXPECT_EQ(lab.at("over_budget"), true);
  EXPECT_EQ(report.at("rows")[1].at("key"), "lab/vision");
  EXPECT_FALSE(report.at("rows")[1].contains("budget_hours"));
  EXPECT_EQ(report.at("rows")[2].at("key"), "ops");
  EXPECT_EQ(report.at("rows")[2].at("over_budget"), false);
  EXPECT_TRUE(HasMetric("baton_team_budget_used_ratio{team=\"lab\"} 4"));
  EXPECT_TRUE(HasMetric("baton_team_budget_used_ratio{team=\"ops\"} 0"));
  EXPECT_EQ(Say({{"command", "report"}, {"last", "3d"}, {"team", "ops"}}).at("rows").size(), 1u);
  EXPECT_EQ(Say({{"command", "report"}, {"last", "3d"}, {"user", "x"}}).at("rows").size(), 0u);
}

TEST_F(KeptBooks, NoSpellingOfATeamEscapesItsBudgetNorDoesSayingNone) {
  FillLedger("/lab//vision/", 20);
  Configure(Teams("[[team]]\nname = \"lab/vision\"\nbudget = 5\nover_budget = \"refuse\"\n"));
  Start();
  EXPECT_TRUE(
      Eventually([&] { return Said({"team lab/vision is over its budget of 5 GPU-hours"}); }));
  EXPECT_EQ(Make("new", {{"team", "lab/vision//"}}).value("code", ""), "exhausted");
  EXPECT_EQ(Make("other", {{"team", "//lab//"}}).value("team", ""), "lab");
  EXPECT_EQ(PodStatus("other").at("team"), "lab");
}

TEST_F(KeptBooks, PodsWithoutATeamAreWithinTheBudgetOfDefault) {
  FillLedger("", 20);
  Configure(Teams("[[team]]\nname = \"default\"\nbudget = 5\nover_budget = \"refuse\"\n"));
  Start();
  EXPECT_TRUE(Eventually([&] { return Said({"team default is over its budget of 5 GPU-hours"}); }));
  EXPECT_EQ(Make("new", json::object()).value("code", ""), "exhausted");
}

TEST_F(KeptBooks, UnknownTeamsAreWarnedOfOrRefused) {
  const std::string teams =
      Teams("[[team]]\nname = \"research/vision\"\nbudget = 500\n[[team]]\nname = \"ops\"\n");
  Configure(teams);
  Start();
  EXPECT_TRUE(Make("a", {{"team", "research"}}).value("ok", false));
  EXPECT_FALSE(Said({"which the file of teams does not name"}));
  EXPECT_TRUE(Make("b", {{"team", "reserch/vision"}}).value("ok", false));
  EXPECT_TRUE(Said({"pod b is of team reserch/vision, which the file of teams does not name"}));
  Configure(teams + "unknown = \"refuse\"\n");
  Restart();
  const json refused = Make("c", {{"team", "reserch/vision"}});
  EXPECT_EQ(refused.value("error", ""),
            "team 'reserch/vision' does not exist; did you mean 'research/vision'?");
  EXPECT_TRUE(Make("d", {{"team", "ops"}}).value("ok", false));
  EXPECT_TRUE(Make("e", json::object()).value("ok", false));
}

TEST_F(KeptBooks, ATeamsLimitHoldsForNewPodsAndChanges) {
  Configure(Teams("[[team]]\nname = \"small\"\nlimit = 1\n"));
  Start();
  Pod("a", {{"team", "small"}, {"request", 60}});
  const json refused = Make("b", {{"team", "small"}, {"request", 60}, {"gpus", {"GPU-b"}}});
  EXPECT_EQ(refused.value("code", ""), "exhausted");
  EXPECT_EQ(refused.value("error", ""),
            "pods of team small may request 1 GPU together, and 0.6 are requested (a 0.6): 0.6 for "
            "b is too much; 0.4 would fit");
  Pod("b", {{"team", "small"}, {"request", 40}, {"gpus", {"GPU-b"}}});
  const json raised = Say({{"command", "set_pod"}, {"name", "b"}, {"request", 50}});
  EXPECT_EQ(raised.value("code", ""), "exhausted") << raised;
  Pod("c", {{"team", "other"}, {"request", 60}, {"gpus", {"GPU-b"}}});
  const json moved = Say({{"command", "set_pod"}, {"name", "c"}, {"team", "small/er"}});
  EXPECT_EQ(moved.value("code", ""), "exhausted") << moved;
}

TEST_F(KeptBooks, QuestionsThatMakeNoSenseAreAnsweredWithASentence) {
  Configure();
  Start();
  Pod("a");
  for (const auto& [request, code, words] : std::vector<std::tuple<json, std::string, std::string>>{
           {{{"command", "report"}, {"by", "colour"}}, "invalid", "choose one of team, user"},
           {{{"command", "report"}, {"bye", "team"}}, "invalid", "no field bye"},
           {{{"command", "report"}, {"by", 5}}, "invalid", "by must be a text"},
           {{{"command", "report"}, {"by", std::string(600, 'x')}}, "invalid", "512 characters"},
           {{{"command", "report"}, {"by", "team,colour"}}, "invalid", "choose one of team, user"},
           {{{"command", "report"}, {"by", "team,team"}}, "invalid", "each key once"},
           {{{"command", "report"}, {"by", "day,total"}}, "invalid", "no other keys"},
           {{{"command", "report"}, {"by", "day,"}}, "invalid", "choose one of"},
           {{{"command", "report"}, {"time_zone", "Mars/Olympus"}}, "invalid", "no time zone"},
           {{{"command", "report"}, {"time_zone", "../../etc/passwd"}}, "invalid", "no time zone"},
           {{{"command", "report"}, {"last", "soon"}}, "invalid", "soon"},
           {{{"command", "report"}, {"last", "0"}}, "invalid", "is empty"},
           {{{"command", "report"}, {"last", "7d"}, {"from", "2026-11-01"}}, "invalid", "either"},
           {{{"command", "report"}, {"to", "2026-11-01"}}, "invalid", "needs --from"},
           {{{"command", "report"}, {"from", "2026-02-30"}}, "invalid", "2026-02-30"},
           {{{"command", "report"}, {"from", nullptr}}, "invalid", "from must be a text"},
           {{{"command", "standing"}, {"team", "a"}}, "invalid", "no field team"},
           {{{"command", "explain"}}, "invalid", "either pod or team"},
           {{{"command", "explain"}, {"pod", "a"}, {"team", "b"}}, "invalid", "either"},
           {{{"command", "explain"}, {"pod", "nobody"}}, "not_found", "no pod nobody"},
           {{{"command", "explain"}, {"team", "a"}}, "not_found", "[teams] file is not set"},
           {{{"command", "advise"}, {"last", "-1d"}}, "invalid", "-1d"},
           {{{"command", "advise"}, {"pod", "a"}}, "invalid", "no field pod"},
           {{{"command", "whatif"}, {"last", "-1d"}}, "invalid", "-1d"},
           {{{"command", "whatif"}, {"shares", "a"}}, "invalid", "'a' is not POD=REQUEST"},
           {{{"command", "whatif"}, {"shares", "a=30,=5"}}, "invalid", "'=5' is not POD=REQUEST"},
           {{{"command", "whatif"}, {"shares", "a=3x"}}, "invalid", "3x"},
           {{{"command", "whatif"}, {"shares", "a=30:20"}}, "invalid", "limit"},
           {{{"command", "whatif"}, {"shares", "nobody=30"}}, "not_found", "no pod nobody"},
           {{{"command", "workload"}, {"last", "-1d"}}, "invalid", "-1d"},
           {{{"command", "history"}, {"gpu", "GPU-a"}, {"last", "-1d"}}, "invalid", "-1d"},
           {{{"command", "standing"}, {"forecast", "soon"}}, "invalid", "'soon' is not a time"},
           {{{"command", "log"}, {"last", "-1d"}}, "invalid", "-1d"},
           {{{"command", "log"}, {"user", "a"}}, "invalid", "no field user"},
       }) {
    const json answer = Say(request);
    EXPECT_FALSE(answer.value("ok", true)) << request;
    EXPECT_EQ(answer.value("code", ""), code) << request << answer;
    EXPECT_NE(answer.value("error", "").find(words), std::string::npos) << request << answer;
  }
  for (const char* command : {"report", "standing", "advise", "whatif", "log"}) {
    EXPECT_TRUE(Say({{"command", command}}).value("ok", false)) << command;
  }
  EXPECT_FALSE(Say({{"command", "explain"}, {"pod", "a"}}).at("sentences").empty());
  const json unnamed = Make("c", {{"user", std::string(300, 'u')}});
  EXPECT_EQ(unnamed.value("code", ""), "invalid") << unnamed;
}

TEST_F(KeptBooks, ALedgerThatIsRemovedIsBegunAnewAndTokensGoOn) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  ASSERT_TRUE(IsBooked("pod", "a", Held("a")));
  for (const char* end : {"", "-wal", "-shm"}) {
    unlink((folder_ / "state/ledger.sqlite" + end).c_str());
  }
  EXPECT_TRUE(Eventually([&] { return Said({"removed or replaced"}); })) << daemon_.Log();
  // The new one first hears of what is there, and books what is used from then on.
  ASSERT_TRUE(KnowsTheGpus());
  const int64_t before = Held("a");
  Use("a", ticket);
  EXPECT_TRUE(IsBooked("pod", "a", Held("a") - before)) << Report("pod");
}

TEST_F(KeptBooks, ALedgerThatWasDeletedCountsFromNowOnAndSaysSo) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  const int64_t before = Held("a");
  ASSERT_TRUE(IsBooked("pod", "a", before));
  EXPECT_FALSE(Said({"the ledger is new or was deleted"}));
  EXPECT_EQ(daemon_.Stop(), 0);
  for (const char* end : {"", "-wal", "-shm"}) {
    unlink((folder_ / "state/ledger.sqlite" + end).c_str());
  }
  Start();
  EXPECT_TRUE(Eventually([&] { return Said({"the ledger is new or was deleted"}); }))
      << daemon_.Log();
  Use("a", ticket);
  EXPECT_TRUE(IsBooked("pod", "a", Held("a") - before));
}

TEST_F(KeptBooks, ADamagedLedgerIsMovedAsideAndSaidAndTokensGoOn) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  ASSERT_TRUE(IsBooked("pod", "a", Held("a")));
  ASSERT_EQ(daemon_.Stop(), 0);
  WriteText(folder_ / "state/ledger.sqlite", std::string(8192, 'x'));
  Start();
  EXPECT_TRUE(Eventually([&] { return Said({"ledger.sqlite.damaged"}); })) << daemon_.Log();
  const int64_t before = Held("a");
  Use("a", ticket);
  EXPECT_TRUE(IsBooked("pod", "a", Held("a") - before)) << Report("pod");
}

TEST_F(KeptBooks, WithoutRoomForTheLedgerTokensGoOnAndNothingIsLost) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  ASSERT_TRUE(IsBooked("pod", "a", Held("a")));
  rlimit none{0, 0}, before;
  ASSERT_EQ(prlimit(daemon_.pid(), RLIMIT_FSIZE, nullptr, &before), 0);
  none.rlim_max = before.rlim_max;
  ASSERT_EQ(prlimit(daemon_.pid(), RLIMIT_FSIZE, &none, nullptr), 0);
  EXPECT_TRUE(Eventually([&] {
    return Say({{"command", "status"}}).at("daemon").at("degraded").dump().find("ledger") !=
           std::string::npos;
  }));
  Use("a", ticket);
  ASSERT_EQ(prlimit(daemon_.pid(), RLIMIT_FSIZE, &before, nullptr), 0);
  EXPECT_TRUE(IsBooked("pod", "a", Held("a"))) << Report("pod");
  EXPECT_TRUE(Eventually([&] { return Said({"the ledger works again"}); }));
}

}  // namespace
}  // namespace baton::backend
