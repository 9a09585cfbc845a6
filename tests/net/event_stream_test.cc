// Event streams: readers that read, are slow, too many, or talk.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/server.h"
#include "tests/net/client.h"
#include "tests/net/served.h"

namespace baton::net {
namespace {

using std::chrono::milliseconds;

TEST(EventStream, ReachesAllWhoRead) {
  Served served;
  std::vector<std::unique_ptr<Client>> readers;
  for (int i = 0; i < 3; ++i) {
    readers.push_back(std::make_unique<Client>(served.port()));
    readers.back()->Send("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Answer answer = readers.back()->Read();
    EXPECT_EQ(answer["content-type"], "text/event-stream");
    EXPECT_EQ(answer["cache-control"], "no-store");
  }
  ASSERT_TRUE(served.AwaitReaders(3));
  served.OnLoop([&] {
    served.stream->Broadcast("status", "{\"a\":1}");
    served.stream->Broadcast("ledger", [] { return std::string("two\nlines"); });
  });
  for (const auto& reader : readers) {
    EXPECT_EQ(reader->ReadUntil("\n\n"), "event: status\ndata: {\"a\":1}\n\n");
    EXPECT_EQ(reader->ReadUntil("\n\n"), "event: ledger\ndata: two\ndata: lines\n\n");
  }
  readers.pop_back();
  EXPECT_TRUE(served.AwaitReaders(2)) << "who leaves is noticed";
}

TEST(EventStream, IsKeptAliveByComments) {
  HttpOptions options;
  options.heartbeat = milliseconds(50);
  options.write_timeout = milliseconds(100);  // is not for streams that wait
  Served served(options);
  Client reader(served.port());
  reader.Send("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(reader.Read().status, 200);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(reader.ReadUntil("\n\n"), ":\n\n");
}

TEST(EventStream, ASlowReaderIsDroppedAndTheOthersAreNot) {
  Served served;
  Client slow(served.port(), false, 4096);
  Client quick(served.port());
  for (Client* client : {&slow, &quick}) {
    client->Send("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(client->Read().status, 200);
  }
  ASSERT_TRUE(served.AwaitReaders(2));
  const std::string big(1 << 20, 'z');
  int sent = 0;
  // More than the kernel's buffers and the backlog hold.
  for (; sent < 64 && served.stream->readers() == 2; ++sent) {
    served.OnLoop([&] { served.stream->Broadcast("status", big); });
    ASSERT_EQ(quick.ReadUntil("\n\n").size(), big.size() + 22);
  }
  EXPECT_TRUE(served.AwaitReaders(1));
  EXPECT_GT(sent, 16);
  served.OnLoop([&] { served.stream->Broadcast("status", "on"); });
  EXPECT_EQ(quick.ReadUntil("\n\n"), "event: status\ndata: on\n\n");
  // The dropped one comes again.
  EXPECT_TRUE(slow.AwaitEnd());
  Client again(served.port());
  again.Send("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(again.Read().status, 200);
  EXPECT_TRUE(served.AwaitReaders(2));
}

TEST(EventStream, ReadersAreBounded) {
  HttpOptions options;
  options.streams_max = 2;
  Served served(options);
  auto a = std::make_unique<Client>(served.port());
  Client b(served.port()), c(served.port());
  EXPECT_EQ(a->Get("/api/v1/stream").status, 200);
  EXPECT_EQ(b.Get("/api/v1/stream").status, 200);
  const Answer answer = c.Get("/api/v1/stream");
  EXPECT_EQ(answer.status, 503);
  EXPECT_NE(answer.body.find("\"exhausted\""), std::string::npos);
  EXPECT_EQ(c.Get("/").status, 200) << "the connection goes on";
  a.reset();
  ASSERT_TRUE(served.AwaitReaders(1));
  EXPECT_EQ(c.Get("/api/v1/stream").status, 200) << "a place is free again";
}

TEST(EventStream, AReaderThatTalksWithoutEndIsLetGo) {
  Served served;
  Client client(served.port());
  EXPECT_EQ(client.Get("/api/v1/stream").status, 200);
  const std::string chatter(1 << 20, 'c');
  client.Send(chatter);
  EXPECT_TRUE(client.AwaitEnd());
  EXPECT_TRUE(served.AwaitReaders(0));
}

}  // namespace
}  // namespace baton::net
