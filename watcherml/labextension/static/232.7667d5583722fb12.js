"use strict";(self.rspackChunkwatcherml_lab=self.rspackChunkwatcherml_lab||[]).push([[232],{475(e,o,r){var t=r(601),n=r.n(t),a=r(314),i=(r.n(a))()(n());i.push([e.id,`/* Every colour is one of JupyterLab's own, so that each theme, light or dark, is met. */

.wml-Sidebar,
.wml-Page {
  display: flex;
  flex-direction: column;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
}

.wml-Sidebar {
  min-width: 220px;
  overflow: auto;
}

.wml-Sidebar [hidden],
.wml-Page [hidden] {
  display: none;
}

.wml-Head {
  display: flex;
  align-items: center;
  justify-content: space-between;
  padding: 8px 8px 2px 12px;
}

.wml-Title {
  margin: 0;
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
}

.wml-Sidebar button.wml-Refresh {
  width: 28px;
  height: 24px;
  padding: 0;
  border: none;
  border-radius: 2px;
  background: transparent;
  color: var(--jp-ui-font-color1);
  font-size: 15px;
  line-height: 24px;
  cursor: pointer;
}

.wml-Sidebar button.wml-Refresh:hover {
  background: var(--jp-layout-color2);
}

.wml-Sidebar select.wml-Picker {
  flex: 0 0 auto;
  margin: 4px 12px;
  width: calc(100% - 24px);
  height: 26px;
  padding: 0 6px;
  font-size: var(--jp-ui-font-size1);
  text-overflow: ellipsis;
}

.wml-Place,
.wml-Said {
  flex: 0 0 auto;
  padding: 0 12px;
  line-height: 1.5;
}

.wml-Place {
  overflow: hidden;
  /* The end of a path tells stores apart: it is the beginning that gives way. */
  direction: rtl;
  text-align: left;
  text-overflow: ellipsis;
  white-space: nowrap;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

.wml-Said {
  padding-bottom: 6px;
}

.wml-Problem {
  flex: 0 0 auto;
  margin: 6px 12px;
  padding: 6px 10px;
  border-left: 3px solid var(--jp-error-color1);
  background: var(--jp-layout-color2);
  line-height: 1.45;
  overflow-wrap: anywhere;
}

.wml-Empty {
  padding: 8px 12px;
  line-height: 1.5;
  color: var(--jp-ui-font-color2);
}

.wml-Empty p {
  margin: 0 0 8px;
}

.wml-Empty code {
  display: block;
  margin: 0 0 8px;
  padding: 4px 8px;
  border-radius: 2px;
  background: var(--jp-layout-color2);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
}

.wml-Section {
  display: flex;
  align-items: center;
  gap: 6px;
  padding: 4px 12px;
  border-top: 1px solid var(--jp-border-color2);
  background: var(--jp-layout-color1);
  list-style: none;
  cursor: pointer;
  user-select: none;
}

.wml-Section::-webkit-details-marker {
  display: none;
}

.wml-Section::before {
  content: '';
  width: 0;
  height: 0;
  border-top: 4px solid transparent;
  border-bottom: 4px solid transparent;
  border-left: 5px solid var(--jp-ui-font-color2);
}

details[open] > .wml-Section::before {
  transform: rotate(90deg);
}

.wml-Section h3 {
  flex: 1 1 auto;
  margin: 0;
  font-size: var(--jp-ui-font-size0);
  font-weight: 600;
  letter-spacing: 0.4px;
  text-transform: uppercase;
}

.wml-Count {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  font-variant-numeric: tabular-nums;
}

.wml-List {
  margin: 0;
  padding: 0 0 6px;
  list-style: none;
}

.wml-Row {
  position: relative;
  display: flex;
  align-items: flex-start;
}

.wml-Row:hover,
.wml-Row:focus-within {
  background: var(--jp-layout-color2);
}

.wml-Sidebar button.wml-Item {
  display: grid;
  flex: 1 1 auto;
  grid-template-columns: 10px minmax(0, 1fr) auto auto;
  align-items: baseline;
  column-gap: 6px;
  min-width: 0;
  padding: 5px 12px;
  border: none;
  background: transparent;
  color: inherit;
  font: inherit;
  line-height: 1.4;
  text-align: left;
  cursor: pointer;
}

.wml-Dot {
  align-self: center;
  width: 8px;
  height: 8px;
  border-radius: 50%;
  background: var(--jp-border-color1);
}

.wml-tone-good {
  background: var(--jp-success-color1);
}

.wml-tone-bad {
  background: var(--jp-error-color1);
}

.wml-tone-warn {
  background: var(--jp-warn-color1);
}

.wml-tone-calm {
  background: var(--jp-brand-color1);
}

.wml-Name,
.wml-About {
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.wml-Name {
  grid-column: 2;
}

.wml-mod-marked .wml-Name {
  font-weight: 600;
}

.wml-Row time {
  grid-column: 4;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  font-variant-numeric: tabular-nums;
}

.wml-About,
.wml-Prose {
  grid-column: 2 / -1;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

.wml-Prose {
  display: -webkit-box;
  overflow: hidden;
  overflow-wrap: anywhere;
  -webkit-box-orient: vertical;
  -webkit-line-clamp: 2;
}

.wml-New {
  grid-column: 3;
  padding: 0 6px;
  border-radius: 8px;
  background: var(--jp-error-color1);
  color: #fff;
  font-size: 10px;
  line-height: 15px;
}

.wml-Rest {
  padding: 3px 12px 3px 28px;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

.wml-Row .wml-Stop {
  margin: 6px 12px 0 0;
}

.wml-Sidebar button.wml-Stop,
.wml-Page button.wml-Stop,
.wml-Page button.wml-Link {
  flex: 0 0 auto;
  height: 22px;
  padding: 0 10px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 2px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-family: inherit;
  font-size: var(--jp-ui-font-size0);
  line-height: 20px;
  cursor: pointer;
}

.wml-Sidebar button.wml-Stop,
.wml-Page button.wml-Stop {
  border-color: var(--jp-error-color1);
}

.wml-Sidebar button.wml-Stop:hover:enabled,
.wml-Page button.wml-Stop:hover:enabled {
  background: var(--jp-error-color1);
  color: #fff;
}

.wml-Page button.wml-Link:hover {
  background: var(--jp-layout-color2);
}

.wml-Sidebar button:disabled,
.wml-Page button:disabled {
  border-color: var(--jp-border-color2);
  color: var(--jp-ui-font-color2);
  cursor: default;
}

.wml-Sidebar button:focus-visible,
.wml-Sidebar summary:focus-visible,
.wml-Sidebar select:focus-visible,
.wml-Page button:focus-visible,
.wml-Page iframe:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.wml-PageHead {
  display: flex;
  flex: 0 0 auto;
  flex-wrap: wrap;
  align-items: center;
  gap: 6px;
  min-height: 22px;
  padding: 5px 12px;
  border-bottom: 1px solid var(--jp-border-color2);
}

.wml-PageTitle {
  flex: 1 1 180px;
  overflow: hidden;
  min-width: 0;
  font-weight: 600;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.wml-Page .wml-Problem:not([hidden]) {
  display: flex;
  align-items: flex-start;
  justify-content: space-between;
  gap: 12px;
}

.wml-Frame {
  flex: 1 1 auto;
  width: 100%;
  min-height: 0;
  border: none;
}

/* While a tab is dragged its frame must not take the pointer away. */
body.lm-mod-override-cursor .wml-Frame {
  pointer-events: none;
}

/* A panel of a saved notebook: its HTML instead of a widget that no kernel keeps alive. */
.jp-OutputArea-output.wml-lost {
  display: none;
}

.wml-kept-note {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size1);
  margin-bottom: 6px;
}
`,""]),r.d(o,{},{A:i})},314(e){e.exports=function(e){var o=[];return o.toString=function(){return this.map(function(o){var r="",t=void 0!==o[5];return o[4]&&(r+="@supports (".concat(o[4],") {")),o[2]&&(r+="@media ".concat(o[2]," {")),t&&(r+="@layer".concat(o[5].length>0?" ".concat(o[5]):""," {")),r+=e(o),t&&(r+="}"),o[2]&&(r+="}"),o[4]&&(r+="}"),r}).join("")},o.i=function(e,r,t,n,a){"string"==typeof e&&(e=[[null,e,void 0]]);var i={};if(t)for(var l=0;l<this.length;l++){var p=this[l][0];null!=p&&(i[p]=!0)}for(var s=0;s<e.length;s++){var c=[].concat(e[s]);t&&i[c[0]]||(void 0!==a&&(void 0===c[5]||(c[1]="@layer".concat(c[5].length>0?" ".concat(c[5]):""," {").concat(c[1],"}")),c[5]=a),r&&(c[2]&&(c[1]="@media ".concat(c[2]," {").concat(c[1],"}")),c[2]=r),n&&(c[4]?(c[1]="@supports (".concat(c[4],") {").concat(c[1],"}"),c[4]=n):c[4]="".concat(n)),o.push(c))}},o}},601(e){e.exports=function(e){return e[1]}},72(e){var o=[];function r(e){for(var r=-1,t=0;t<o.length;t++)if(o[t].identifier===e){r=t;break}return r}function t(e,t){for(var n={},a=[],i=0;i<e.length;i++){var l=e[i],p=t.base?l[0]+t.base:l[0],s=n[p]||0,c="".concat(p," ").concat(s);n[p]=s+1;var d=r(c),u={css:l[1],media:l[2],sourceMap:l[3],supports:l[4],layer:l[5]};if(-1!==d)o[d].references++,o[d].updater(u);else{var m=function(e,o){var r=o.domAPI(o);return r.update(e),function(o){o?(o.css!==e.css||o.media!==e.media||o.sourceMap!==e.sourceMap||o.supports!==e.supports||o.layer!==e.layer)&&r.update(e=o):r.remove()}}(u,t);t.byIndex=i,o.splice(i,0,{identifier:c,updater:m,references:1})}a.push(c)}return a}e.exports=function(e,n){var a=t(e=e||[],n=n||{});return function(e){e=e||[];for(var i=0;i<a.length;i++){var l=r(a[i]);o[l].references--}for(var p=t(e,n),s=0;s<a.length;s++){var c=r(a[s]);0===o[c].references&&(o[c].updater(),o.splice(c,1))}a=p}}},659(e){var o={};e.exports=function(e,r){var t=function(e){if(void 0===o[e]){var r=document.querySelector(e);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(e){r=null}o[e]=r}return o[e]}(e);if(!t)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");t.appendChild(r)}},540(e){e.exports=function(e){var o=document.createElement("style");return e.setAttributes(o,e.attributes),e.insert(o,e.options),o}},56(e,o,r){e.exports=function(e){var o=r.nc;o&&e.setAttribute("nonce",o)}},825(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var o=e.insertStyleElement(e);return{update:function(r){var t,n,a;t="",r.supports&&(t+="@supports (".concat(r.supports,") {")),r.media&&(t+="@media ".concat(r.media," {")),(n=void 0!==r.layer)&&(t+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),t+=r.css,n&&(t+="}"),r.media&&(t+="}"),r.supports&&(t+="}"),(a=r.sourceMap)&&"u">typeof btoa&&(t+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(t,o,e.options)},remove:function(){var e;null===(e=o).parentNode||e.parentNode.removeChild(e)}}}},113(e){e.exports=function(e,o){if(o.styleSheet)o.styleSheet.cssText=e;else{for(;o.firstChild;)o.removeChild(o.firstChild);o.appendChild(document.createTextNode(e))}}},579(e,o,r){var t=r(72),n=r.n(t),a=r(825),i=r.n(a),l=r(659),p=r.n(l),s=r(56),c=r.n(s),d=r(540),u=r.n(d),m=r(113),f=r.n(m),w=r(475),b={};b.styleTagTransform=f(),b.setAttributes=c(),b.insert=p().bind(null,"head"),b.domAPI=i(),b.insertStyleElement=u(),n()(w.A,b),w.A&&w.A.locals&&w.A.locals}}]);