// Tokens that are sent ahead, by what the daemon's socket says: clients with words of their own
// making.
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <list>

#include "tests/backend/batond_fixture.h"
#include "tests/wire/lingering.h"
#include "tests/wire/passed_files.h"
#include "tests/wire/sealed_words.h"

namespace baton::backend {
namespace {

uint64_t g_last = 0;  // number of a client

// A client whose words are written by the test.
class Worded : public ScriptedClient {
 public:
  explicit Worded(const std::string& path) : Worded(path, ++g_last) {}

  void MakeFile(size_t size, int seals) {
    words_ = std::make_unique<wire::SealedWords>(size, seals);
  }
  wire::Word& word() { return words_->word(); }
  int file() const { return words_->file(); }

  // As Join(), with `files` beside Hello.
  bool JoinWith(const std::string& ticket, const std::vector<int>& files) {
    wire::Hello hello;
    hello.ticket.Set(ticket);
    hello.incarnation = number_;
    hello.words = true;
    char bytes[wire::kTenantFrameMax];
    const size_t size = wire::Encode(hello, bytes, sizeof bytes);
    return wire::SendWithFiles(fd(), {bytes, size}, files) && Await<wire::Welcome>() &&
           SendAttach(0, "GPU-a") && Await<wire::Attached>();
  }
  bool Join(const std::string& ticket) { return JoinWith(ticket, {file()}); }
  // What it has drained, by its word.
  void SayWord() {
    word().rev = state.rev;
    word().epoch = state.epoch;
  }
  // It holds, and drains: its last word is the token's.
  bool Drain() { return Report(Phase::kHolding) && Report(Phase::kDraining); }
  // The next Token that was sent ahead, with the word that it waits for; null: another one came.
  struct Ahead {
    wire::Token token;
    const wire::Word* word = nullptr;
  };
  Ahead AwaitAhead() {
    char bytes[wire::kTenantFrameMax];
    pollfd ready{fd(), POLLIN, 0};
    Ahead ahead;
    if (poll(&ready, 1, kPatienceMs) <= 0) return ahead;
    UniqueFd file;
    const ssize_t size = wire::ReceiveWithFile(fd(), bytes, sizeof bytes, file);
    wire::Frame frame;
    if (size <= 0 || frame.Parse(bytes, static_cast<size_t>(size)) != wire::DecodeStatus::kOk ||
        !frame.Read(ahead.token) || !file) {
      return ahead;
    }
    void* at = mmap(nullptr, wire::kWordsBytes, PROT_READ, MAP_SHARED, file.get(), 0);
    void* writable = mmap(nullptr, wire::kWordsBytes, PROT_WRITE, MAP_SHARED, file.get(), 0);
    writable_ = writable != MAP_FAILED;
    if (at != MAP_FAILED) {
      ahead.word = &static_cast<const wire::Words*>(at)->of[ahead.token.after_gpu];
    }
    return ahead;
  }
  bool got_writable() const { return writable_; }
  void Begin(const wire::Token& token) {
    state.epoch = token.epoch;
    state.rev = token.rev;
    word().began_ns = static_cast<uint64_t>(Nanos(MonotonicNow()));
    word().began_epoch = token.epoch;
  }
  // Whether some frame lies in the socket after a round trip of the other client's.
  bool HasFrame() { return !Receive(100).empty(); }

 private:
  Worded(const std::string& path, uint64_t number)
      : ScriptedClient(path, number), number_(number) {}

  const uint64_t number_;
  std::unique_ptr<wire::SealedWords> words_ = std::make_unique<wire::SealedWords>();
  bool writable_ = false;
};

class Words : public Batond {
 protected:
  void SetUp() override {
    Batond::SetUp();
    first_ = std::make_unique<Worded>(Socket());
    second_ = std::make_unique<Worded>(Socket());
    ASSERT_TRUE(first_->Join(Pod("first", 40)));
    ticket_ = Pod("second", 40);
  }
  // The first one holds, the second one waits and is sent its token ahead.
  Worded::Ahead SendAhead() {
    EXPECT_TRUE(second_->Join(ticket_));
    EXPECT_TRUE(first_->Ask() && first_->AwaitGrant());
    EXPECT_TRUE(second_->Ask());
    EXPECT_TRUE(first_->AwaitGateClosed());
    EXPECT_TRUE(first_->Report(Phase::kDraining));
    return second_->AwaitAhead();
  }

  std::unique_ptr<Worded> first_, second_;
  std::string ticket_;
};

TEST_F(Words, ATokenIsSentAheadAndBeginsByTheHoldersWord) {
  const auto ahead = SendAhead();
  ASSERT_NE(ahead.word, nullptr);
  EXPECT_FALSE(second_->got_writable());
  EXPECT_GT(ahead.token.quota_ns, 0u);
  EXPECT_EQ(ahead.token.after_epoch, first_->state.epoch);
  EXPECT_EQ(Holder(), "first");
  EXPECT_FALSE(ahead.word->Says(ahead.token.after_epoch, ahead.token.after_rev));
  first_->SayWord();
  EXPECT_TRUE(ahead.word->Says(ahead.token.after_epoch, ahead.token.after_rev));
  second_->Begin(ahead.token);
  ASSERT_TRUE(second_->Report(Phase::kHolding));
  EXPECT_EQ(Holder(), "first") << "it has not said so yet";
  ASSERT_TRUE(first_->GiveBack());
  EXPECT_EQ(Holder(), "second");
  while (second_->HasGrantNow()) EXPECT_GT(second_->state.rev, 1u) << "it has begun by itself";
}

TEST_F(Words, WhoHasNotBegunWhenTheHolderIsBackIsTold) {
  const auto ahead = SendAhead();
  ASSERT_NE(ahead.word, nullptr);
  ASSERT_TRUE(first_->GiveBack());  // and its word says nothing
  const auto token = second_->AwaitGrant();
  ASSERT_TRUE(token);
  EXPECT_EQ(token->epoch, ahead.token.epoch);
  EXPECT_EQ(token->after_client, 0u);
  EXPECT_EQ(Holder(), "second");
}

TEST_F(Words, OfAHolderThatIsGoneTheNextOneIsTold) {
  ASSERT_NE(SendAhead().word, nullptr);
  first_->Close();
  // Its process, which is this one, lives: it holds until it comes back and has drained.
  EXPECT_EQ(Holder(), "first");
  ASSERT_TRUE(first_->Connect(Socket()) &&
              first_->Join(Say({{"command", "pod"}, {"name", "first"}}).value("ticket", "")));
  ASSERT_TRUE(first_->GiveBack());
  EXPECT_TRUE(second_->AwaitGrant());
}

TEST_F(Words, WhatAHolderThatClosesItsSocketHasInItsWordCounts) {
  const auto ahead = SendAhead();
  ASSERT_NE(ahead.word, nullptr);
  first_->SayWord();
  second_->Begin(ahead.token);
  first_->Close();
  for (int i = 0; i < 100 && Holder() != "second"; ++i) poll(nullptr, 0, 20);
  EXPECT_EQ(Holder(), "second");
}

TEST_F(Words, FilesThatCouldBeTakenAwayAreNone) {
  const std::string third = Pod("third", 10);
  const int kNoFile = open("/dev/null", O_RDWR | O_CLOEXEC);
  struct {
    const char* what;
    size_t size;
    int seals;
  } const files[] = {
      {"without seals", wire::kWordsBytes, 0},
      {"that may shrink", wire::kWordsBytes, wire::SealedWords::kSeals & ~F_SEAL_SHRINK},
      {"that others may write", wire::kWordsBytes, wire::SealedWords::kSeals & ~0x10},
      {"too short", 1, wire::SealedWords::kSeals},
      {"no memory", 0, -1}};
  for (const auto& file : files) {
    SCOPED_TRACE(file.what);
    Worded client(Socket());
    if (file.seals >= 0) client.MakeFile(file.size, file.seals);
    ASSERT_TRUE(client.JoinWith(third, {file.seals >= 0 ? client.file() : kNoFile}));
    ASSERT_TRUE(first_->Ask() && first_->AwaitGrant());
    ASSERT_TRUE(client.Ask());
    ASSERT_TRUE(first_->AwaitGateClosed());
    ASSERT_TRUE(first_->Report(Phase::kDraining));
    EXPECT_FALSE(client.HasFrame()) << "nothing is sent ahead to it";
    ASSERT_TRUE(first_->GiveBack());
    ASSERT_TRUE(client.AwaitGrant());
    ASSERT_TRUE(client.GiveBack());
  }
  close(kNoFile);
}

TEST_F(Words, DescriptorsThatNobodyAskedForAreClosed) {
  const auto open_files = [this] {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(daemon_.pid()) + "/fd");
    return std::distance(begin(all), end(all));
  };
  ASSERT_TRUE(second_->JoinWith(ticket_, {second_->file(), second_->file(), second_->file()}));
  Worded other(Socket());
  ASSERT_TRUE(other.Join(ticket_));
  const auto before = open_files();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(other.Connect(Socket()));
    ASSERT_TRUE(other.JoinWith(ticket_, std::vector<int>(200, second_->file())));
  }
  // Of 4 000 that it was sent. It opens a few of its own meanwhile.
  EXPECT_TRUE(Eventually([&] { return open_files() < before + 10; })) << open_files();
}

// Who closes the last reference to a socket that lingers waits for as long as its maker likes.
class PassedSockets : public Words {
 protected:
  // Passes one with the text, which the daemon alone has then.
  bool Pass(int to, std::string_view text) {
    wire::Lingering& file = files_.emplace_back();
    kill(daemon_.pid(), SIGSTOP);
    const bool passed = file.ready() && wire::SendWithFiles(to, text, {file.fd()});
    if (passed) file.Leave();
    kill(daemon_.pid(), SIGCONT);
    return passed;
  }
  bool Answers() {
    const Instant before = MonotonicNow();
    return Say({{"command", "ping"}}).value("ok", false) &&
           MonotonicNow() - before < std::chrono::seconds(wire::Lingering::kSeconds / 3);
  }

 private:
  std::list<wire::Lingering> files_;  // their other ends stay
};

TEST_F(PassedSockets, BesideAnyFrameHoldUpNobody) {
  ASSERT_TRUE(second_->Join(ticket_));
  wire::Hello hello;
  hello.ticket.Set(ticket_);
  hello.incarnation = 1'000;
  hello.words = true;
  char bytes[wire::kTenantFrameMax];
  Worded third(Socket());
  ASSERT_TRUE(Pass(third.fd(), {bytes, wire::Encode(hello, bytes, sizeof bytes)}));
  EXPECT_TRUE(Answers());
  EXPECT_TRUE(third.Await<wire::Welcome>()) << "it has no word";
  const std::string_view state(bytes, wire::Encode(second_->state, bytes, sizeof bytes));
  ASSERT_TRUE(Pass(second_->fd(), state));
  EXPECT_TRUE(Answers());
  // What nobody reads is closed with the connection.
  Worded fourth(Socket());
  kill(daemon_.pid(), SIGSTOP);  // until both are there
  ASSERT_TRUE(fourth.SendRaw("nonsense") && Pass(fourth.fd(), state));
  EXPECT_TRUE(Answers());
  EXPECT_TRUE(first_->Ask() && first_->AwaitGrant() && first_->GiveBack());
}

TEST_F(PassedSockets, HaveNoPlaceOnTheOperatorsSocket) {
  const UniqueFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder_ / "run/control.sock").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_TRUE(Pass(connection.get(), "{\"command\": \"ping\"}\n"));
  EXPECT_TRUE(Answers());
  char byte;
  EXPECT_LE(recv(connection.get(), &byte, 1, 0), 0);
}

}  // namespace
}  // namespace baton::backend
