// Server-sent events, from pieces of text as they come
// (html.spec.whatwg.org, "Interpreting an event stream"). Pure but for its buffer.

export interface ServerEvent {
  event: string;
  data: string;
}

export class EventParser {
  // `most`: characters that one event may have; a stream that goes beyond is not one of batond's.
  constructor(private readonly most = 32 << 20) {}

  // The events that `piece` completes. Throws RangeError beyond the bound.
  push(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    // A CR at the very end may be half of a CRLF: it waits for the next piece.
    let text = this.rest + piece;
    if (this.first && text !== '') {
      this.first = false;
      if (text.startsWith('\ufeff')) text = text.slice(1);
    }
    let at = 0;
    for (;;) {
      let end = at + Math.max(0, this.searched - at);
      while (end < text.length && text[end] !== '\n' && text[end] !== '\r') ++end;
      if (end >= text.length || (text[end] === '\r' && end + 1 === text.length)) break;
      this.line(text.slice(at, end), events);
      at = end + (text[end] === '\r' && text[end + 1] === '\n' ? 2 : 1);
      this.searched = 0;
    }
    this.rest = text.slice(at);
    this.searched = Math.max(0, this.rest.length - 1);
    if (this.rest.length + this.size > this.most) {
      throw new RangeError('an event of the stream is too long');
    }
    return events;
  }

  private line(line: string, events: ServerEvent[]): void {
    if (line === '') {
      if (this.data.length > 0) events.push({event: this.event || 'message', data: this.data.join('\n')});
      this.data = [];
      this.event = '';
      this.size = 0;
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;  // a comment: batond's heartbeat
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'data') {
      this.data.push(value);
      this.size += value.length;
    } else if (field === 'event') {
      this.event = value;
    }
  }

  private rest = '';
  private searched = 0;  // characters of `rest` that hold no line's end
  private first = true;
  private data: string[] = [];
  private event = '';
  private size = 0;
}
