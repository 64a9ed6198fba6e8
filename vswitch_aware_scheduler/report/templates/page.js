
'use strict';
(function () {
  const ROWS = 50;
  // Uuids and times.
  const UNBROKEN = /^([0-9a-f-]{36}|[-0-9]{10}T[:0-9]{8}Z)$/;
  const data = JSON.parse(document.getElementById('data').textContent);

  // Names are put into the page as text, never as HTML.
  function element(name, attributes, text) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      made.setAttribute(key, value);
    }
    if (text !== undefined) {
      made.textContent = text;
    }
    return made;
  }

  function shown(value, kind) {
    if (value === null) {
      return '–';
    }
    if (kind === 'percent') {
      return (100 * value).toFixed(1) + ' %';
    }
    if (kind === 'probability') {
      return value === 0 ? '0' : value < 1e-9 ? '< 1e-9' :
        String(Number(value.toPrecision(3)));
    }
    return kind === 'number' ? value.toLocaleString('en') : value;
  }

  function compare(a, b, kind) {
    if (a === null || b === null) {
      return a === b ? 0 : a === null ? Infinity : -Infinity;
    }
    if (kind === 'text') {
      return a < b ? -1 : a > b ? 1 : 0;
    }
    return a - b;
  }

  function reveal(target) {
    const found = target && document.getElementById(target.slice(1));
    if (found && found.tagName === 'DETAILS') {
      found.open = true;
    }
    return found;
  }

  function makeTable(place) {
    const table = data[place.dataset.table];
    const caption = place.dataset.caption;
    const state = {column: table.sort[0], way: table.sort[1], page: 0,
                   search: ''};
    const all = table.rows.map((row, number) => number);
    const texts = table.rows.map(
      (row) => row.filter((cell) => typeof cell === 'string')
        .join('\n').toLowerCase());
    const id = 'search-' + place.dataset.table;
    const controls = element('div', {'class': 'controls'});
    controls.append(element('label', {'for': id}, 'Search ' + caption));
    const input = element('input', {type: 'search', id: id,
                                    autocomplete: 'off'});
    controls.append(input);
    const back = element('button', {type: 'button'}, 'Previous');
    const on = element('button', {type: 'button'}, 'Next');
    const where = element('span', {role: 'status', 'aria-live': 'polite'});
    controls.append(back, on, where);
    const body = element('tbody');
    const head = element('tr');
    const headings = table.columns.map(([title], column) => {
      const cell = element('th', {scope: 'col'});
      const button = element('button', {type: 'button'});
      button.addEventListener('click', () => {
        state.way = state.column === column ? -state.way : 1;
        state.column = column;
        state.page = 0;
        fill();
      });
      cell.append(button);
      head.append(cell);
      return cell;
    });

    function found() {
      const word = state.search.trim().toLowerCase();
      const rows = word ? all.filter((i) => texts[i].includes(word))
        : all.slice();
      const kind = table.columns[state.column][1];
      return rows.sort((i, j) => {
        const order = compare(table.rows[i][state.column],
                              table.rows[j][state.column], kind);
        // Unknown values are last in both directions.
        return (Number.isFinite(order) ? state.way * order : order) || i - j;
      });
    }

    function fill() {
      const rows = found();
      const first = state.page * ROWS;
      const some = rows.slice(first, first + ROWS);
      headings.forEach((cell, column) => {
        const sorted = column === state.column;
        if (sorted) {
          cell.setAttribute('aria-sort',
                            state.way > 0 ? 'ascending' : 'descending');
        } else {
          cell.removeAttribute('aria-sort');
        }
        cell.firstChild.textContent = table.columns[column][0] +
          (sorted ? (state.way > 0 ? ' ▲' : ' ▼') : '');
      });
      body.replaceChildren(...some.map((i) => {
        const line = element('tr');
        table.rows[i].forEach((value, column) => {
          const kind = table.columns[column][1];
          const cell = element(column ? 'td' : 'th',
                               column ? {} : {scope: 'row'});
          const link = column === 0 && table.links && table.links[i];
          if (link) {
            const anchor = element('a', {href: link}, shown(value, kind));
            anchor.addEventListener('click', () => reveal(
              link.startsWith('#') ? link : null));
            cell.append(anchor);
          } else {
            cell.textContent = shown(value, kind);
          }
          if (kind !== 'text') {
            cell.className = 'right';
          } else if (UNBROKEN.test(value)) {
            cell.className = 'unbroken';
          } else if (value === 'above the limit') {
            cell.className = 'state-bad';
          }
          line.append(cell);
        });
        return line;
      }));
      back.disabled = state.page === 0;
      on.disabled = first + ROWS >= rows.length;
      where.textContent = rows.length ?
        (first + 1).toLocaleString('en') + '–' +
        (first + some.length).toLocaleString('en') + ' of ' +
        rows.length.toLocaleString('en') : 'none found';
    }

    input.addEventListener('input', () => {
      state.search = input.value;
      state.page = 0;
      fill();
    });
    back.addEventListener('click', () => { state.page -= 1; fill(); });
    on.addEventListener('click', () => { state.page += 1; fill(); });
    const made = element('table');
    made.append(element('caption', {}, caption), element('thead'), body);
    made.children[1].append(head);
    const scroll = element('div', {'class': 'scroll', tabindex: '0',
                                   role: 'region', 'aria-label': caption});
    scroll.append(made);
    place.append(controls, scroll);
    fill();
    return (word) => { input.value = word;
                       input.dispatchEvent(new Event('input')); };
  }

  const search = {};
  for (const place of document.querySelectorAll('.table')) {
    const details = place.closest('details');
    const name = place.dataset.table;
    if (details && !details.open) {
      // Create the table when the details are first opened.
      details.addEventListener('toggle', () => {
        search[name] = search[name] || makeTable(place);
      });
    } else {
      search[name] = makeTable(place);
    }
  }

  const map = document.getElementById('map');
  if (map) {
    const rows = data.hosts.rows;
    const cells = rows.map(([host, , , , risk, limit, , used], number) => {
      let classes = 'cell rx';
      if (risk !== null) {
        const part = risk > limit ? Infinity : limit ? risk / limit : 0;
        const of = (value, edges) => edges.filter((e) => value > e).length;
        classes = 'cell r' + of(part, [0.01, 0.1, 0.5, 1]) +
          ' u' + of(used, [0.2, 0.4, 0.6, 0.8]);
      }
      return element('span', {
        'class': classes, 'data-row': number,
        title: host + ': ' + (risk === null ? 'not judged' :
          'overload probability ' + shown(risk, 'probability') +
          ', utilisation ' + shown(used, 'percent'))});
    });
    map.classList.toggle('many', rows.length > 1500);
    map.append(...cells);
    map.addEventListener('click', (event) => {
      const number = event.target.dataset.row;
      if (number !== undefined) {
        search.hosts(rows[number][0]);
      }
    });
    const colour = (by) => {
      map.className = map.className.replace(/by-\w+/, 'by-' + by);
      for (const legend of document.querySelectorAll('.legend')) {
        legend.classList.toggle('hidden',
                                !legend.classList.contains('by-' + by));
      }
      for (const button of document.querySelectorAll('[data-map-by]')) {
        button.setAttribute('aria-pressed',
                            String(button.dataset.mapBy === by));
      }
    };
    for (const button of document.querySelectorAll('[data-map-by]')) {
      button.addEventListener('click', () => colour(button.dataset.mapBy));
    }
    colour('risk');
  }
  reveal(location.hash);
  window.addEventListener('hashchange', () => reveal(location.hash));
}());
